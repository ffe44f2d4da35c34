#include "models/data/sources/function.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/error.h"

namespace mpigrad::data {
namespace {

// What f returns or throws, as a future.
template <class F>
auto now(const F& f) {
  std::promise<decltype(f())> promise;
  try {
    if constexpr (std::is_void_v<decltype(f())>) f(), promise.set_value();
    else promise.set_value(f());
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
  return promise.get_future();
}

}  // namespace

FunctionSource::FunctionSource(FunctionSamples samples) : samples_(std::move(samples)) {
  const auto& s = samples_;
  require(s.size > 0 && s.channels > 0 && s.extents.rank() == 3 && s.extents.elements() > 0,
          "[data] {}: no samples: {} of {} with {} channels", s.name, s.size, s.extents, s.channels);
  require(s.values != nullptr && s.targets != nullptr && !s.target_names.empty(),
          "[data] {}: a function is needed for values, one for targets, and a name for each of these", s.name);
}

std::string FunctionSource::name_of_sample(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  return fmt::format("{} [{}]", samples_.name, sample);
}

std::future<void> FunctionSource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                             std::span<const std::int64_t> end, DType type, void* out) const {
  return now([&] {
    require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
    require(type == DType::float32 || type == DType::float64, "[data] {} are read as float32 or float64, not {}", samples_.name,
            mpigrad::name_of(type));
    Box box{Shape{0, 0, 0}, samples_.extents};
    for (int d = 0; d < 3; ++d) {
      const auto i = static_cast<std::size_t>(d);
      box.begin[d] = begin[i], box.end[d] = end[i];
    }
    const auto count = static_cast<std::size_t>(box.elements() * samples_.channels);
    if (count == 0) return;
    if (type == DType::float32) return samples_.values(sample, box, {static_cast<float*>(out), count});
    std::vector<float> values(count);
    samples_.values(sample, box, values);
    std::copy(values.begin(), values.end(), static_cast<double*>(out));
  });
}

std::future<std::vector<double>> FunctionSource::targets_async(std::int64_t sample) const {
  return now([&] {
    const auto name = name_of_sample(sample);
    auto values = samples_.targets(sample);
    require(values.size() == samples_.target_names.size(), "[data] {} has {} targets for {} names", name, values.size(),
            samples_.target_names.size());
    for (std::size_t i = 0; samples_.classes && i < values.size(); ++i) {
      require(values[i] == std::floor(values[i]), "[data] {}: {} is no class", name, values[i]);
      require_exact(values[i], samples_.target_names[i], name);
    }
    return values;
  });
}

void FunctionSource::check(std::int64_t part, std::int64_t parts) const {
  for (auto sample = part; sample < size(); sample += parts) targets(sample);
}

}  // namespace mpigrad::data
