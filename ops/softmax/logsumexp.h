#pragma once
// Sums of exponentials, and exponentials that are shifted and scaled, in one pass over a matrix each: what large softmaxes spend
// their time on beside products. float32 and float64; in float32 the exponential is our own, of which both the sums and what is
// divided by them are made (relative error below 2e-7, 0 below exp(-87.3)).

#include "framework/engine/op.h"

namespace mpigrad {

// exp(x - shift) * scale; x: [n, m], shift and scale: [n, 1] both or [1, m] both.
Tensor exp_scaled(const Tensor& x, const Tensor& shift, const Tensor& scale);
// 0 in place of minus infinity: the logarithm of a sum of nothing, whose terms are all 0 whatever they are divided by; a finite
// number keeps NaN away.
Tensor zero_if_nothing(const Tensor& y);
// The shift of a sum of exponentials, given its largest term: a constant, as it cancels in the sum's logarithm and in all
// derivatives, and finite, as infinity - infinity is no number. NaN stays NaN.
Tensor finite_shift(const Tensor& maximum);

namespace ops {

// y[...] = log sum exp x along `axis`, which y has not; -infinity where nothing is finite.  xbar = ybar exp(x - y).
// Behind logsumexp() of ops/softmax/softmax.h, for one dimension of a tensor that is not distributed.
struct LogSumExpAlong {
  int axis = 0;  // not negative
  static constexpr OpTraits traits() { return {.name = "logsumexp", .keeps_inputs = 1, .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y = exp(x - a) b;  xbar = ybar y,  abar = -sum ybar y,  bbar = sum ybar exp(x - a), summed over what a and b are repeated
// along.
struct ExpScaled {
  static constexpr OpTraits traits() { return {.name = "exp_scaled", .keeps_inputs = 3, .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
