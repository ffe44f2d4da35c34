#pragma once
// Random tensors and dropout. The number at a place depends on seed, stream and *global* index, never on the partition.

#include "framework/random.h"
#include "framework/tensor.h"

namespace mpigrad {

// On the current device; with a layout, this rank's block of the tensor whose global shape is `shape`. Uniform in [low, high).
Tensor random_uniform(const Shape& shape, const Philox& random, double low = 0, double high = 1, DType dtype = DType::float32,
                      LayoutPtr layout = {});
Tensor random_normal(const Shape& shape, const Philox& random, double mean = 0, double deviation = 1,
                     DType dtype = DType::float32, LayoutPtr layout = {});
// x * mask / keep, where each element of mask is 1 with probability keep. keep 1 is x.
Tensor dropout(const Tensor& x, double keep, const Philox& random);

namespace ops {

// What random_on_gpu makes of uniform numbers u and normal ones z: min(a + b u, limit), a + b z, or u < a ? b : 0.
struct RandomNumbers {
  enum class Kind : std::uint8_t { uniform, normal, mask };
  Kind kind = Kind::uniform;
  Philox random;
  double a = 0, b = 1, limit = 0;
};
// y is the part `box` of a tensor of shape `global`.
void random_on_gpu(const RandomNumbers& numbers, const Box& box, const Shape& global, Tensor& y);

}  // namespace ops
}  // namespace mpigrad
