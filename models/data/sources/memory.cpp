#include "models/data/sources/memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mpigrad::data {

void require_labels(const Labels& labels, std::int64_t samples, const std::string& of) {
  require(static_cast<std::int64_t>(labels.values.size()) == samples, "[data] {} labels '{}' for the {} samples of {}",
          labels.values.size(), labels.name, samples, of);
  for (const auto value : labels.values) require_exact(static_cast<double>(value), labels.name, of);
}

MemorySource::MemorySource(Samples samples, std::vector<Labels> labels)
    : samples_(std::move(samples)), labels_(std::move(labels)) {
  const auto& s = samples_;
  require(s.count > 0 && s.channels > 0 && s.extents.elements() > 0, "[data] {}: no samples: {} of {} with {} channels",
          s.file.string(), s.count, s.extents, s.channels);
  for (const auto& each : labels_) require_labels(each, s.count, s.file.string()), names_.push_back(each.name);
}

std::string MemorySource::name_of_sample(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  return fmt::format("{} [{}]", samples_.file.string(), sample);
}

std::future<void> MemorySource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                           std::span<const std::int64_t> end, DType type, void* out) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  const auto bytes = samples_.extents.elements() * samples_.channels * size_of(samples_.type);
  copy_box(samples_.values.data() + sample * bytes, samples_.type, samples_.extents, samples_.channels, begin, end, type, out);
  std::promise<void> done;
  done.set_value();
  return done.get_future();
}

std::future<std::vector<double>> MemorySource::targets_async(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  std::vector<double> row;
  for (const auto& each : labels_) row.push_back(static_cast<double>(each.values[static_cast<std::size_t>(sample)]));
  std::promise<std::vector<double>> done;
  done.set_value(std::move(row));
  return done.get_future();
}

namespace {

// The value of a type that is nearest, halves away from zero.
template <class T>
T nearest(double value) {
  if constexpr (std::is_same_v<T, bool>) return value >= 0.5;
  else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  else {
    using Limits = std::numeric_limits<T>;
    const double rounded = std::round(value);
    if (rounded >= static_cast<double>(Limits::max())) return Limits::max();  // which as a double is 2^63 for int64
    return rounded <= static_cast<double>(Limits::min()) ? Limits::min() : static_cast<T>(rounded);
  }
}

// Rows of the middle, bit for bit; zeros around it.
void copy_middle(const std::byte* from, const Shape& extents, std::int64_t cell_bytes, const Shape& to, std::byte* out) {
  std::fill_n(out, to.elements() * cell_bytes, std::byte{0});
  const auto [first, at, count] = augment::middle_of(extents, to);
  const auto place = [&](const Shape& of, std::int64_t d, std::int64_t h, std::int64_t w) {
    return ((d * of[1] + h) * of[2] + w) * cell_bytes;
  };
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h)
      std::copy_n(from + place(extents, first[0] + d, first[1] + h, first[2]), count[2] * cell_bytes,
                  out + place(to, at[0] + d, at[1] + h, at[2]));
}

}  // namespace

void fit_stored(const std::byte* values, DType type, const Shape& extents, std::int64_t channels, const Shape& to,
                augment::Fit fit, std::byte* out) {
  const auto window = augment::cover_window(extents, to);
  bool scaled = false;
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    scaled = scaled || window.end[i] - window.begin[i] != static_cast<double>(to[a]);
  }
  if (fit == augment::Fit::pad || !scaled) return copy_middle(values, extents, channels * size_of(type), to, out);
  augment::WideSample wide(extents, channels);
  const std::array<std::int64_t, 3> begin{};
  copy_box(values, type, extents, channels, begin, extents.span(), DType::float64, wide.values.data());
  wide = augment::resized(wide, window, to, augment::Filter::area);
  visit_arithmetic(type, [&](auto zero) {
    using T = decltype(zero);
    std::transform(wide.values.begin(), wide.values.end(), reinterpret_cast<T*>(out), nearest<T>);
  });
}

Samples fitted(Samples samples, const Shape& extents, augment::Fit fit) {
  if (samples.extents == extents) return samples;
  Samples result{samples.file, samples.count, samples.channels, extents, samples.type, {}};
  const auto from = samples.extents.elements() * samples.channels * size_of(samples.type);
  const auto to = extents.elements() * samples.channels * size_of(samples.type);
  result.values.resize(static_cast<std::size_t>(to * samples.count));
  for (std::int64_t i = 0; i < samples.count; ++i)
    fit_stored(samples.values.data() + i * from, samples.type, samples.extents, samples.channels, extents, fit,
               result.values.data() + i * to);
  return result;
}

}  // namespace mpigrad::data
