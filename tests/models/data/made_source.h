#pragma once
// Samples of random numbers, without files.

#include <cmath>
#include <limits>
#include <string>

#include "framework/tensor/random.h"
#include "models/data/source.h"

namespace mpigrad::testing {

struct MadeSamples {
  std::int64_t samples = 8, channels = 4;
  Shape extents{4, 4, 4};
  bool classes = false;        // each target is one of `channels` classes; otherwise `channels` numbers
  std::int64_t infinite = -1;  // a sample whose targets are infinite
  std::uint64_t seed = 1;
};

// float32 volumes; the targets depend on them a little.
class MadeSource : public data::Source {
 public:
  explicit MadeSource(MadeSamples made) : made_(std::move(made)) {
    const auto count = made_.classes ? 1 : made_.channels;
    type_ = {.extents = made_.extents, .channels = made_.channels};
    type_.targets = {.type = made_.classes ? DType::int64 : DType::float64, .shape = {count}};
    for (std::int64_t t = 0; t < count; ++t) type_.targets.names.push_back("target_" + std::to_string(t));
  }

  std::int64_t size() const override { return made_.samples; }
  const data::SampleType& sample_type() const override { return type_; }

  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    auto* to = reinterpret_cast<float*>(out);
    const auto& e = made_.extents;
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          for (std::int64_t c = 0; c < made_.channels; ++c)
            *to++ = value(sample, ((d * e[1] + h) * e[2] + w) * made_.channels + c);
  }
  void read_targets(std::int64_t sample, const Box&, std::byte* out) const override {
    for (std::int64_t t = 0; t < target_type().shape[0]; ++t) {
      const auto x = static_cast<double>(value(sample, t));
      if (made_.classes) {
        const auto n = static_cast<std::int64_t>(std::floor(std::abs(x) * 1000));
        reinterpret_cast<std::int64_t*>(out)[t] = n % made_.channels;
      } else {
        reinterpret_cast<double*>(out)[t] = sample == made_.infinite ? std::numeric_limits<double>::infinity() : std::tanh(x);
      }
    }
  }

 private:
  float value(std::int64_t sample, std::int64_t place) const {
    return static_cast<float>(Philox{made_.seed, static_cast<std::uint64_t>(sample)}.normal(static_cast<std::uint64_t>(place)));
  }
  MadeSamples made_;
  data::SampleType type_;
};

}  // namespace mpigrad::testing
