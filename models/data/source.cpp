#include "models/data/source.h"

#include <cmath>

#include "comm/hdf5/io_thread.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

std::string_view name_of(Transform transform) {
  switch (transform) {
    case Transform::of_source: return "of_source";
    case Transform::none: return "none";
    case Transform::log1p: return "log1p";
    case Transform::unit: return "unit";
    case Transform::unit16: return "unit16";
  }
  return "?";
}

void require_exact(double label, const std::string& name, const std::string& file) {
  require(std::abs(label) < 0x1p53, "[data] {}: the label '{}' is {:.0f}: classes from 2^53 on cannot be told apart", file, name,
          label);
}

void require_sample(const Source& source, std::int64_t sample) {
  require(sample >= 0 && sample < source.size(), "[data] sample {} of {}", sample, source.size());
}

std::int64_t target_elements(const Source& source, const Box& box) {
  const auto& targets = source.target_type();
  return targets.shape.elements() * (targets.per_cell ? box.elements() : 1);
}

void require_same_extents(const Source& source, const std::string& what) {
  require(source.sample_type().same_extents, "[data] samples differ in their extents, up to {}: {}", source.extents(), what);
}

Shape Source::extents_of(std::int64_t) const { return extents(); }

std::string Source::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return fmt::format("sample {}", sample);
}

JobQueue& Source::queue() const { return io_thread(); }

std::vector<double> Source::values(std::int64_t sample, const Box& box) const {
  const auto count = box.elements() * channels();
  std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(type())));
  queue().run([&] { read(sample, box, stored.data()); });
  std::vector<double> values(static_cast<std::size_t>(count));
  convert(stored.data(), type(), count, DType::float64, values.data());
  return values;
}

std::vector<double> Source::targets(std::int64_t sample) const {
  const auto& type = target_type();
  require(!type.per_cell, "[data] {}: targets are volumes, not a row of numbers", name_of_sample(sample));
  const auto count = type.shape.elements();
  std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(type.type)));
  const auto read = [&] { read_targets(sample, whole_of(sample), stored.data()); };
  if (targets_in_memory()) read();
  else if (count > 0) queue().run(read);
  std::vector<double> values(static_cast<std::size_t>(count));
  convert(stored.data(), type.type, count, DType::float64, values.data());
  return values;
}

void Source::check(std::int64_t part, std::int64_t parts) const {
  const auto& type = target_type();
  for (auto sample = part; sample < size(); sample += parts) {
    const auto box = whole_of(sample);
    const auto count = target_elements(*this, box);
    std::vector<double> values;
    if (type.per_cell) {
      std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(type.type)));
      queue().run([&] { read_targets(sample, box, stored.data()); });
      values.resize(is_floating(type.type) ? static_cast<std::size_t>(count) : 0);
      if (!values.empty()) convert(stored.data(), type.type, count, DType::float64, values.data());
    } else {
      values = targets(sample);
    }
    for (std::size_t t = 0; t < values.size(); ++t)
      require(std::isfinite(values[t]), "[data] {}: the target '{}' is {}", name_of_sample(sample),
              t < target_names().size() ? target_names()[t] : std::to_string(t), values[t]);
  }
}

}  // namespace mpigrad::data
