#ifndef MPIGRAD_OPS_RANDOM_RANDOM_H
#define MPIGRAD_OPS_RANDOM_RANDOM_H
// Random tensors and dropout. The number at a position depends on seed, stream and *global* index, never on the partition.

#include <optional>

#include "framework/tensor/random.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// A tensor on the current device; with a layout, this rank's block of the tensor whose global shape is `shape`. Uniform in [low,
// high). Complex types: real and imaginary part are drawn each, and `mean` is added to both.
Tensor random_uniform(const Shape& shape, const Philox& random, double low = 0, double high = 1, DType dtype = DType::float32,
                      LayoutPtr layout = {});
Tensor random_normal(const Shape& shape, const Philox& random, double mean = 0, double deviation = 1,
                     DType dtype = DType::float32, LayoutPtr layout = {});
// Integers, uniform in [low, high): floor((high - low) u) + low with the u of random_uniform in float64. [low, high) has at most
// 2^53 numbers; the probabilities of two numbers differ by at most a relative (high - low) / 2^53.
Tensor random_integers(const Shape& shape, const Philox& random, std::int64_t low, std::int64_t high, DType dtype = DType::int64,
                       LayoutPtr layout = {});
// The numbers 0 to n - 1 in random order, int64 [n], on the current device: sorted on the host by random words of 64 bits.
Tensor permutation(std::int64_t n, const Philox& random);
// [..., C] -> int64 [...]: class c with probability softmax(logits)[c], the largest of logits[c] - log(-log(u[c])) (Gumbel 1954).
// Computed in float64; GPUs round logarithms differently, so that a draw may differ where two classes nearly tie. The class
// dimension must not be split. The result is a constant.
Tensor categorical(const Tensor& logits, const Philox& random);
// 1 with probability p, else 0, of p's type: u < p with the u of random_uniform in float64. The result is a constant.
Tensor bernoulli(const Tensor& p, const Philox& random);
// x * mask / keep, where each element of mask is 1 with probability keep. keep 1 is x.
Tensor dropout(const Tensor& x, double keep, const Philox& random);
// dropout(x, keep, random.child(step)). In a captured step (framework/cuda/graph.h) each repetition draws the numbers of its own
// step; other random tensors refuse to be captured, because they would be the same in every repetition.
Tensor dropout(const Tensor& x, double keep, const Philox& random, std::uint64_t step);

namespace ops {

// Numbers that random_on_gpu computes from uniform u and normal z: min(a + b u, limit), a + b z, or u < a ? b : 0.
struct RandomNumbers {
  enum class Kind : std::uint8_t { uniform, normal, mask };
  Kind kind = Kind::uniform;
  Philox random;
  double a = 0, b = 1, limit = 0;
  std::optional<std::uint64_t> step{};  // the numbers are those of random.child(*step)
};
// y is the block `box` of a tensor of shape `global`.
void random_on_gpu(const RandomNumbers& numbers, const Box& box, const Shape& global, Tensor& y);

}  // namespace ops
}  // namespace mpigrad

#endif
