#include "models/trainer/plot/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mpigrad::plot {

namespace {

std::string label_of(double value, double step) {
  if (value == 0) return "0";
  const double largest = std::max(std::abs(value), step);
  if (largest >= 1e6 || step < 1e-5) return fmt::format("{:.4g}", value);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::vector<Tick> linear_ticks(const Range& range, int wanted) {
  const double raw = (range.high - range.low) / std::max(1, wanted);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= raw * 0.7) step = factor * power;
  if (range.whole) step = std::max(step, 1.0);
  std::vector<Tick> ticks;
  const double tolerance = 1e-6 * step;
  for (double k = std::ceil((range.low - tolerance) / step); k * step <= range.high + tolerance; ++k)
    ticks.push_back({k * step, label_of(k * step, step)});
  return ticks;
}

std::vector<Tick> log_ticks(const Range& range) {
  const double decades = std::log10(range.high / range.low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 8)));  // powers with a label
  std::vector<Tick> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(range.low))); power <= std::ceil(std::log10(range.high)); ++power)
    for (int factor = 1; factor < 10; ++factor) {
      const double value = factor * std::pow(10, power);
      if (value < range.low * (1 - 1e-9) || value > range.high * (1 + 1e-9)) continue;
      const bool labelled = factor == 1     ? power % stride == 0
                            : decades < 0.8 ? true
                                            : decades < 2 && (factor == 2 || factor == 5);
      if (labelled) ticks.push_back({value, fmt::format("{:.4g}", value)});
      else if (stride == 1) ticks.push_back({value, ""});
    }
  return ticks;
}

}  // namespace

void Range::include(double value) {
  if (!std::isfinite(value)) return;
  whole = (empty() || whole) && value == std::floor(value);
  low = std::min(low, value), high = std::max(high, value);
}

double Axis::position(double value) const {
  if (log) return std::log(value / range.low) / std::log(range.high / range.low);
  return (value - range.low) / (range.high - range.low);
}

Axis make_axis(const Range& data, bool log, int wanted) {
  Axis axis{data, log, {}};
  double &low = axis.range.low, &high = axis.range.high;
  if (data.empty()) low = log ? 1 : 0, high = log ? 10 : 1;
  if (log) {
    if (high / low < 1.2) low /= 1.1, high *= 1.1;
    const double room = std::pow(high / low, 0.05);
    low /= room, high *= room;
    axis.ticks = high / low < 3 ? linear_ticks(axis.range, wanted) : log_ticks(axis.range);
  } else {
    if (high - low <= 1e-12 * std::max(std::abs(high), std::abs(low)) || high == low) {
      const double room = high == 0 ? 1 : 0.1 * std::abs(high);
      low -= room, high += room;
    }
    const double room = 0.04 * (high - low);
    low -= room, high += room;
    axis.ticks = linear_ticks(axis.range, wanted);
  }
  return axis;
}

}  // namespace mpigrad::plot
