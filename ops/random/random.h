#ifndef MPIGRAD_OPS_RANDOM_RANDOM_H
#define MPIGRAD_OPS_RANDOM_RANDOM_H
// Random tensors and dropout. The number at a place depends on seed, stream and *global* index, never on the partition.

#include <optional>

#include "framework/tensor/random.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// On the current device; with a layout, this rank's block of the tensor whose global shape is `shape`. Uniform in [low, high).
Tensor random_uniform(const Shape& shape, const Philox& random, double low = 0, double high = 1, DType dtype = DType::float32,
                      LayoutPtr layout = {});
Tensor random_normal(const Shape& shape, const Philox& random, double mean = 0, double deviation = 1,
                     DType dtype = DType::float32, LayoutPtr layout = {});
// x * mask / keep, where each element of mask is 1 with probability keep. keep 1 is x.
Tensor dropout(const Tensor& x, double keep, const Philox& random);
// dropout(x, keep, random.child(step)). Where a step is captured (framework/cuda/graph.h), repetitions draw with the numbers of
// theirs; other random tensors refuse to be captured, because they would be the same every time.
Tensor dropout(const Tensor& x, double keep, const Philox& random, std::uint64_t step);

namespace ops {

// What random_on_gpu makes of uniform numbers u and normal ones z: min(a + b u, limit), a + b z, or u < a ? b : 0.
struct RandomNumbers {
  enum class Kind : std::uint8_t { uniform, normal, mask };
  Kind kind = Kind::uniform;
  Philox random;
  double a = 0, b = 1, limit = 0;
  std::optional<std::uint64_t> step{};  // the numbers are those of random.child(*step)
};
// y is the part `box` of a tensor of shape `global`.
void random_on_gpu(const RandomNumbers& numbers, const Box& box, const Shape& global, Tensor& y);

}  // namespace ops
}  // namespace mpigrad

#endif
