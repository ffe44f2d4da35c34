#include "models/data/sources/function.h"

#include <cmath>

#include "models/data/sources/bytes.h"

namespace mpigrad::data {

FunctionSource::FunctionSource(FunctionSamples samples) : samples_(std::move(samples)) {
  const auto& s = samples_;
  require(s.size > 0 && s.channels > 0 && s.extents.rank() == 3 && s.extents.elements() > 0,
          "[data] {}: no samples: {} of {} with {} channels", s.name, s.size, s.extents, s.channels);
  require(s.values != nullptr && s.targets != nullptr && !s.target_names.empty(),
          "[data] {}: needs a function for values, a function for targets, and a name for each target", s.name);
  type_ = {.extents = s.extents, .channels = s.channels};
  type_.targets = {.type = s.classes ? DType::int64 : DType::float64,
                   .shape = {static_cast<std::int64_t>(s.target_names.size())},
                   .names = s.target_names};
}

std::string FunctionSource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return fmt::format("{} [{}]", samples_.name, sample);
}

void FunctionSource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto count = static_cast<std::size_t>(box.elements() * samples_.channels);
  if (count > 0) samples_.values(sample, box, {reinterpret_cast<float*>(out), count});
}

void FunctionSource::read_targets(std::int64_t sample, const Box&, std::byte* out) const {
  const auto name = name_of_sample(sample);
  const auto values = samples_.targets(sample);
  require(values.size() == samples_.target_names.size(), "[data] {} has {} targets for {} names", name, values.size(),
          samples_.target_names.size());
  for (std::size_t i = 0; samples_.classes && i < values.size(); ++i) {
    require(values[i] == std::floor(values[i]), "[data] {}: {} is not a class", name, values[i]);
    require_exact(values[i], samples_.target_names[i], name);
  }
  convert(values.data(), DType::float64, static_cast<std::int64_t>(values.size()), target_type().type, out);
}

}  // namespace mpigrad::data
