#pragma once
// Samples made of random numbers, without files.

#include <cmath>
#include <future>
#include <string>
#include <vector>

#include "framework/tensor/random.h"
#include "models/data/data_source.h"

namespace mpigrad::testing {

struct MadeSamples {
  std::int64_t samples = 8, channels = 4;
  Shape extents{4, 4, 4};
  bool classes = false;        // one of `channels`; else as many numbers
  std::int64_t infinite = -1;  // a sample whose targets are infinite
  std::uint64_t seed = 1;
};

// float32 volumes; targets that depend on them a little.
class MadeSource : public data::Source {
 public:
  explicit MadeSource(MadeSamples made) : made_(std::move(made)) {
    const auto count = made_.classes ? 1 : made_.channels;
    for (std::int64_t t = 0; t < count; ++t) names_.push_back("target_" + std::to_string(t));
  }

  std::int64_t size() const override { return made_.samples; }
  const Shape& extents() const override { return made_.extents; }
  std::int64_t channels() const override { return made_.channels; }
  DType type() const override { return DType::float32; }
  data::Transform transform() const override { return data::Transform::none; }
  const std::vector<std::string>& target_names() const override { return names_; }
  DType target_type() const override { return made_.classes ? DType::int64 : DType::float32; }
  std::string name_of_sample(std::int64_t sample) const override { return "sample " + std::to_string(sample); }

  std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType,
                               void* out) const override {
    auto* to = static_cast<float*>(out);
    const auto& e = made_.extents;
    for (auto d = begin[0]; d < end[0]; ++d)
      for (auto h = begin[1]; h < end[1]; ++h)
        for (auto w = begin[2]; w < end[2]; ++w)
          for (std::int64_t c = 0; c < made_.channels; ++c)
            *to++ = value(sample, ((d * e[1] + h) * e[2] + w) * made_.channels + c);
    return ready();
  }
  std::future<std::vector<double>> targets_async(std::int64_t sample) const override {
    std::vector<double> values;
    for (std::size_t t = 0; t < names_.size(); ++t) {
      const auto x = static_cast<double>(value(sample, static_cast<std::int64_t>(t)));
      values.push_back(made_.classes
                           ? std::floor(std::abs(x) * 1000) - made_.channels * std::floor(std::abs(x) * 1000 / made_.channels)
                           : std::tanh(x));
      if (sample == made_.infinite) values.back() = std::numeric_limits<double>::infinity();
    }
    std::promise<std::vector<double>> promise;
    promise.set_value(std::move(values));
    return promise.get_future();
  }
  void check(std::int64_t, std::int64_t) const override {}

 private:
  float value(std::int64_t sample, std::int64_t place) const {
    return static_cast<float>(Philox{made_.seed, static_cast<std::uint64_t>(sample)}.normal(static_cast<std::uint64_t>(place)));
  }
  static std::future<void> ready() {
    std::promise<void> promise;
    promise.set_value();
    return promise.get_future();
  }
  MadeSamples made_;
  std::vector<std::string> names_;
};

}  // namespace mpigrad::testing
