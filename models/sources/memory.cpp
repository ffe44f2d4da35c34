#include "models/sources/memory.h"

#include <algorithm>

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

augment::Sample to_sample(const std::byte* values, DType type, const Shape& extents, std::int64_t channels) {
  augment::Sample sample(extents, channels);
  const std::array<std::int64_t, 3> begin{};
  copy_box(values, type, extents, channels, begin, extents.span(), DType::float32, sample.values.data());
  return sample;
}

void from_sample(const augment::Sample& sample, DType type, std::byte* values) {
  visit_arithmetic(type, [&](auto zero) {
    using T = decltype(zero);
    auto* out = reinterpret_cast<T*>(values);
    for (const float value : sample.values) {
      if constexpr (std::is_integral_v<T>) *out++ = static_cast<T>(std::lround(value));
      else *out++ = static_cast<T>(value);
    }
  });
}

Samples fitted(Samples samples, const Shape& extents, augment::Fit fit) {
  if (samples.extents == extents) return samples;
  Samples result{samples.file, samples.count, samples.channels, extents, samples.type, {}};
  const auto from = samples.extents.elements() * samples.channels * size_of(samples.type);
  const auto to = extents.elements() * samples.channels * size_of(samples.type);
  result.values.resize(static_cast<std::size_t>(to * samples.count));
  for (std::int64_t i = 0; i < samples.count; ++i) {
    const auto sample = to_sample(samples.values.data() + i * from, samples.type, samples.extents, samples.channels);
    from_sample(augment::fitted(sample, extents, fit), samples.type, result.values.data() + i * to);
  }
  return result;
}

}  // namespace mpigrad::data
