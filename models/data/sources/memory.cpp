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

namespace {

SampleType type_of(const Samples& s, TargetType targets) {
  return {.extents = s.extents,
          .channels = s.channels,
          .type = s.type,
          .transform = s.transform.value_or(s.type == DType::uint8 ? Transform::unit : Transform::none),
          .targets = std::move(targets)};
}

// One column for each label.
Targets rows_of(const Samples& samples, const std::vector<Labels>& labels) {
  if (labels.empty()) return {};
  Targets result{.type = {.type = DType::int64, .shape = {static_cast<std::int64_t>(labels.size())}}};
  for (const auto& each : labels) {
    require_labels(each, samples.count, samples.file.string());
    result.type.names.push_back(each.name);
  }
  result.values.resize(labels.size() * static_cast<std::size_t>(samples.count) * sizeof(std::int64_t));
  auto* to = reinterpret_cast<std::int64_t*>(result.values.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(samples.count); ++i)
    for (const auto& each : labels) *to++ = each.values[i];
  return result;
}

Bytes copied(const Tensor& x) {
  require(x.device() == DeviceKind::cpu && !is_half(x.dtype()) && !x.layout(),
          "[data] samples are tensors of the host, of float32, float64, integers or booleans, without a layout: {}", x);
  const auto* from = reinterpret_cast<const std::byte*>(x.raw());
  return {from, from + x.elements() * size_of(x.dtype())};
}

}  // namespace

MemorySource::MemorySource(Samples samples, Targets targets)
    : samples_(std::move(samples)), targets_(std::move(targets)), type_(type_of(samples_, targets_.type)) {
  validate();
}

MemorySource::MemorySource(Samples samples, const std::vector<Labels>& labels)
    : samples_(std::move(samples)), targets_(rows_of(samples_, labels)), type_(type_of(samples_, targets_.type)) {
  validate();
}

void MemorySource::validate() const {
  const auto& s = samples_;
  require(s.count > 0 && s.channels > 0 && s.extents.rank() == 3 && s.extents.elements() > 0,
          "[data] {}: no samples: {} of {} with {} channels", s.file.string(), s.count, s.extents, s.channels);
  const auto bytes = s.count * s.extents.elements() * s.channels * size_of(s.type);
  require(static_cast<std::int64_t>(s.values.size()) == bytes, "[data] {}: {} bytes for {} samples of {} bytes", s.file.string(),
          s.values.size(), s.count, bytes / s.count);
  const auto targets_bytes = s.count * target_elements(*this, whole()) * size_of(target_type().type);
  require(static_cast<std::int64_t>(targets_.values.size()) == targets_bytes,
          "[data] {}: {} bytes of targets for {} samples of {}", s.file.string(), targets_.values.size(), s.count,
          targets_bytes / s.count);
}

std::string MemorySource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return fmt::format("{} [{}]", samples_.file.string(), sample);
}

void MemorySource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto cell = samples_.channels * size_of(samples_.type);
  copy_box(samples_.values.data() + sample * samples_.extents.elements() * cell, cell, samples_.extents, box, out);
}

void MemorySource::read_targets(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto& type = target_type();
  const auto item = type.shape.elements() * size_of(type.type), all = target_elements(*this, whole()) * size_of(type.type);
  const auto* from = targets_.values.data() + sample * all;
  if (type.per_cell) copy_box(from, item, samples_.extents, box, out);
  else std::copy_n(from, all, out);
}

SourcePtr from_tensors(const Tensor& volumes, const Tensor& targets, const TensorsOptions& options) {
  const auto& v = volumes.shape();
  const auto& t = targets.shape();
  require(v.rank() == 5 && v.elements() > 0, "[data] samples are [n, D, H, W, C]: {}", volumes);
  const int own = options.per_cell ? 4 : 1;  // dimensions before those of one target
  bool fits = t.rank() >= own && t.elements() > 0;
  for (int d = 0; d < own && fits; ++d) fits = t[d] == v[d];
  fits = fits && (!options.per_cell || t.rank() <= 5);
  require(fits, "[data] targets are [n, {}...] of the volumes {}: {}", options.per_cell ? "D, H, W, " : "", volumes, targets);
  Samples samples{.file = options.name, .count = v[0], .channels = v[4], .extents = {v[1], v[2], v[3]}, .type = volumes.dtype()};
  samples.values = copied(volumes);
  if (options.transform != Transform::of_source) samples.transform = options.transform;
  Targets result{.type = {.type = targets.dtype(), .per_cell = options.per_cell, .names = options.target_names},
                 .values = copied(targets)};
  const auto dimensions = t.span().subspan(static_cast<std::size_t>(own));
  result.type.shape = Shape(dimensions);
  if (!options.per_cell && result.type.shape.rank() == 0) result.type.shape = Shape{1};
  auto& names = result.type.names;
  const bool row = !options.per_cell && result.type.shape.rank() == 1;
  if (row && names.empty())
    for (std::int64_t i = 0; i < result.type.shape[0]; ++i) names.push_back(fmt::format("target {}", i));
  require(static_cast<std::int64_t>(names.size()) == (row ? result.type.shape[0] : 0), "[data] {} names of targets {}",
          names.size(), targets);
  return std::make_shared<MemorySource>(std::move(samples), std::move(result));
}

namespace {

// The nearest value of a type; halves are rounded away from zero.
template <class T>
T nearest(double value) {
  if constexpr (std::is_same_v<T, bool>) return value >= 0.5;
  else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  else {
    using Limits = std::numeric_limits<T>;
    const double rounded = std::round(value);
    if (rounded >= static_cast<double>(Limits::max())) return Limits::max();  // as a double, 2^63 for int64
    return rounded <= static_cast<double>(Limits::min()) ? Limits::min() : static_cast<T>(rounded);
  }
}

// Copies the rows of the middle bit for bit, with zeros around it.
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
  convert(values, type, extents.elements() * channels, DType::float64, wide.values.data());
  wide = augment::resized(wide, window, to, augment::Filter::area);
  visit_stored(type, [&](auto zero) {
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
