#include "models/data/augment/part.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/error.h"

namespace mpigrad::augment {
namespace {

constexpr std::int64_t parallel_from = 1 << 12;  // cells; with fewer, a second thread costs more than it gains

// Output i of an axis of the window is the sum over k < count of weights[i count + k] times input cells[i count + k].
struct AxisTaps {
  std::size_t count = 1;
  std::vector<std::int64_t> cells{};
  std::vector<float> weights{};
};

// The taps of the cells [begin, end) of an axis, as cells of the part. What is missing there is not needed.
template <class Taps>
void filter_axis(const Part& x, int axis, const Taps& taps_of, std::vector<float>& plane) {
  const auto extents = x.box.extents();
  const auto n = extents[axis], outer = extents.elements(0, axis), inner = extents.elements(axis + 1, 3);
  AxisTaps taps;
  for (auto i = x.box.begin[axis]; i < x.box.end[axis]; ++i) taps_of(i, taps);
  taps.count = taps.cells.size() / static_cast<std::size_t>(n);
  for (auto& cell : taps.cells) cell = std::clamp<std::int64_t>(cell - x.box.begin[axis], 0, n - 1);
  std::vector<float> y(plane.size());
#pragma omp parallel for collapse(2) schedule(static) if (outer * n * inner >= parallel_from)
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < n; ++i) {
      float* out = y.data() + (o * n + i) * inner;
      for (std::size_t k = 0; k < taps.count; ++k) {
        const auto tap = static_cast<std::size_t>(i) * taps.count + k;
        const float weight = taps.weights[tap];
        const float* in = plane.data() + (o * n + taps.cells[tap]) * inner;
        for (std::int64_t j = 0; j < inner; ++j) out[j] += weight * in[j];
      }
    }
  plane = std::move(y);
}

// Replaces a channel by its separable filter along the axes that are longer than 1. taps_of(axis)(i, taps) adds the taps of cell
// i of the window.
template <class TapsOfAxis>
void filter(Part& x, std::int64_t channel, const TapsOfAxis& taps_of) {
  const auto channels = x.values.channels;
  std::vector<float> plane(static_cast<std::size_t>(x.box.elements()));
  for (std::size_t i = 0; i < plane.size(); ++i)
    plane[i] = x.values.values[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(channel)];
  for (int axis = 0; axis < 3; ++axis)
    if (x.window[axis] > 1) filter_axis(x, axis, taps_of(axis), plane);
  for (std::size_t i = 0; i < plane.size(); ++i)
    x.values.values[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(channel)] = plane[i];
}

// Applies f to all values of a channel and to its tones; f must not fall.
template <class F>
void pointwise(Part& x, std::int64_t channel, F f) {
  const auto channels = x.values.channels, cells = x.box.elements();
  float* values = x.values.values.data() + channel;
#pragma omp parallel for schedule(static) if (cells >= parallel_from)
  for (std::int64_t i = 0; i < cells; ++i) values[i * channels] = f(values[i * channels]);
  if (x.tones.empty()) return;
  auto& tones = x.tones[static_cast<std::size_t>(channel)];
  tones.least = f(tones.least), tones.greatest = f(tones.greatest);
  for (auto& value : tones.some) value = f(value);
}

const Tones& tones_of(const Part& x, std::int64_t channel) {
  require(static_cast<std::int64_t>(x.tones.size()) == x.values.channels, "[augment] a part without tones");
  return x.tones[static_cast<std::size_t>(channel)];
}

}  // namespace

double Tones::mean() const {
  double sum = 0;
  for (const float value : some) sum += static_cast<double>(value);
  return some.empty() ? 0 : sum / static_cast<double>(some.size());
}

double Tones::deviation() const {
  const double m = mean();
  double sum = 0;
  for (const float value : some) sum += (static_cast<double>(value) - m) * (static_cast<double>(value) - m);
  return some.empty() ? 0 : std::sqrt(sum / static_cast<double>(some.size()));
}

Part whole_part(Sample sample) {
  Part part{.values = std::move(sample)};
  part.window = part.values.extents, part.box = {Shape{0, 0, 0}, part.window};
  const auto cells = part.window.elements(), channels = part.values.channels;
  const auto step = std::max<std::int64_t>(1, cells / Tones::most);
  for (std::int64_t c = 0; c < channels; ++c) {
    auto& tones = part.tones.emplace_back();
    const float* values = part.values.values.data() + c;
    if (cells > 0) tones.least = tones.greatest = values[0];
    for (std::int64_t i = 0; i < cells; ++i) {
      const float value = values[i * channels];
      tones.least = std::min(tones.least, value), tones.greatest = std::max(tones.greatest, value);
      if (i % step == 0) tones.some.push_back(value);
    }
  }
  return part;
}

void noise(Part& x, double deviation, const Philox& random) {
  const auto s = static_cast<float>(deviation);
  constexpr float circle = 2 * std::numbers::pi_v<float> * 0x1p-32F;
  const auto count = x.box.extents();
  const auto row = count[2] * x.values.channels;
#pragma omp parallel for collapse(2) schedule(static) if (count.elements() * x.values.channels >= parallel_from)
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h) {
      // The place of the row's first value in the window; four values share a counter.
      auto place = (((x.box.begin[0] + d) * x.window[1] + x.box.begin[1] + h) * x.window[2] + x.box.begin[2]) * x.values.channels;
      float* value = x.values.values.data() + (d * count[1] + h) * row;
      for (float* const end = value + row; value < end;) {
        const auto w = random.words(static_cast<std::uint64_t>(place) / 4);
        float normal[4];
        for (std::size_t k = 0; k < 4; k += 2) {
          const float radius = std::sqrt(-2 * std::log((static_cast<float>(w[k]) + 0.5F) * 0x1p-32F));
          const float angle = circle * static_cast<float>(w[k + 1]);
          normal[k] = radius * std::cos(angle), normal[k + 1] = radius * std::sin(angle);
        }
        for (auto k = place % 4; k < 4 && value < end; ++k, ++place) *value++ += s * normal[k];
      }
    }
}

std::int64_t blur_reach(double sigma) { return static_cast<std::int64_t>(std::ceil(3 * sigma)); }

void blur(Part& x, std::int64_t channel, double sigma) {
  require(sigma >= 0 && sigma < 1e4, "[augment] the width of a blur must be from 0 to 10000, not {}", sigma);
  if (sigma == 0) return;
  const auto radius = blur_reach(sigma);
  std::vector<float> kernel;
  double sum = 0;
  const auto weight = [&](std::int64_t k) { return std::exp(-static_cast<double>(k * k) / (2 * sigma * sigma)); };
  for (auto k = -radius; k <= radius; ++k) sum += weight(k);
  for (auto k = -radius; k <= radius; ++k) kernel.push_back(static_cast<float>(weight(k) / sum));
  filter(x, channel, [&](int axis) {
    return [&, n = x.window[axis]](std::int64_t i, AxisTaps& taps) {
      const auto period = 2 * (n - 1);
      for (auto k = -radius; k <= radius; ++k) {
        const auto j = (((i + k) % period) + period) % period;
        taps.cells.push_back(std::min(j, period - j));
      }
      taps.weights.insert(taps.weights.end(), kernel.begin(), kernel.end());
    };
  });
}

// The coarse cells up to 2.5 coarse cells away count; of less than 2 factor cells the whole axis is within this reach.
std::int64_t low_resolution_reach(double factor) { return static_cast<std::int64_t>(std::ceil(2.5 * factor / 0.75)) + 1; }

void low_resolution(Part& x, std::int64_t channel, double factor) {
  require(factor >= 1 && factor < 1e4, "[augment] the factor of a low resolution must be from 1 to 10000, not {}", factor);
  filter(x, channel, [&](int axis) {
    return [n = x.window[axis], factor](std::int64_t i, AxisTaps& taps) {
      const auto coarse = std::max<std::int64_t>(1, std::llround(static_cast<double>(n) / factor));
      const double ratio = static_cast<double>(n) / static_cast<double>(coarse);
      const double at = (static_cast<double>(i) + 0.5) / ratio - 0.5, low = std::floor(at), t = at - low;
      const double weights[4] = {t * (-0.5 + t * (1 - 0.5 * t)), 1 + t * t * (-2.5 + 1.5 * t), t * (0.5 + t * (2 - 1.5 * t)),
                                 t * t * (-0.5 + 0.5 * t)};
      for (std::int64_t k = 0; k < 4; ++k) {
        const auto cell = std::clamp<std::int64_t>(static_cast<std::int64_t>(low) + k - 1, 0, coarse - 1);
        taps.cells.push_back(std::min(n - 1, static_cast<std::int64_t>((static_cast<double>(cell) + 0.5) * ratio)));
        taps.weights.push_back(static_cast<float>(weights[k]));
      }
    };
  });
}

void brighten(Part& x, std::int64_t channel, double factor) {
  pointwise(x, channel, [f = static_cast<float>(factor)](float value) { return f * value; });
}

void contrast(Part& x, std::int64_t channel, double factor) {
  const auto& tones = tones_of(x, channel);
  const auto mean = static_cast<float>(tones.mean()), f = static_cast<float>(factor);
  pointwise(x, channel, [=, least = tones.least, greatest = tones.greatest](float value) {
    return std::clamp(f * (value - mean) + mean, least, greatest);
  });
}

void gamma(Part& x, std::int64_t channel, double exponent, bool inverted) {
  require(exponent > 0, "[augment] the exponent of a gamma must be positive, not {}", exponent);
  const auto before = tones_of(x, channel);
  const float range = before.greatest - before.least;
  if (!(range > 0)) return;
  // Falls from the greatest value if it is inverted.
  const float from = inverted ? before.greatest : before.least, direction = inverted ? -1 : 1;
  pointwise(x, channel, [=, e = static_cast<float>(exponent)](float value) {
    return from + direction * range * std::pow(std::max(direction * (value - from) / range, 0.0F), e);
  });
  const auto& after = tones_of(x, channel);
  const double deviation = after.deviation();
  if (!(deviation > 0)) return;
  const double scale = before.deviation() / deviation;
  pointwise(x, channel,
            [s = static_cast<float>(scale), shift = static_cast<float>(before.mean() - scale * after.mean())](float value) {
              return s * value + shift;
            });
}

}  // namespace mpigrad::augment
