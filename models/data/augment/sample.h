#pragma once
// One sample in memory while it is prepared, and the random numbers of its augmentation.

#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/tensor/random.h"
#include "framework/tensor/shape.h"

namespace mpigrad::augment {

// Values [D, H, W, C], row-major; a picture has D = 1.
template <class T>
struct BasicSample {
  Shape extents{1, 1, 1};  // [D, H, W]
  std::int64_t channels = 1;
  std::vector<T> values;

  BasicSample() = default;
  BasicSample(const Shape& extents_, std::int64_t channels_)
      : extents(extents_), channels(channels_), values(static_cast<std::size_t>(extents_.elements() * channels_)) {}
};
using Sample = BasicSample<float>;
// The type in which stored numbers are resized: exact for every integer below 2^53.
using WideSample = BasicSample<double>;

// A sequence of random numbers: the n-th depends only on the generator and n.
class Draws {
 public:
  explicit Draws(const Philox& random) : random_(random) {}
  double uniform(double low, double high) { return low + (high - low) * random_.uniform(counter_++); }
  double log_uniform(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  double normal() { return random_.normal(counter_++); }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(counter_++, static_cast<std::uint64_t>(n)));
  }
  bool half() { return (random_.words(counter_++)[0] >> 31) != 0; }

 private:
  Philox random_;
  std::uint64_t counter_ = 0;
};

}  // namespace mpigrad::augment
