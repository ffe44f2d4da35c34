#pragma once
// Sums of exponentials, and shifted and scaled exponentials, in one pass over a matrix each: besides products, large softmaxes
// spend most of their time on them. float32 and float64. In float32 both use an exponential of our own, so that sums and divided
// values agree (relative error below 2e-7, 0 below exp(-87.3)).

#include "framework/engine/op.h"

namespace mpigrad {

// exp(x - shift) * scale; x: [n, m], shift and scale: [n, 1] both or [1, m] both.
Tensor exp_scaled(const Tensor& x, const Tensor& shift, const Tensor& scale);
// Replaces minus infinity, the logarithm of an empty sum, by 0: all terms of the sum are 0, whatever they are divided by, and a
// finite number avoids NaN.
Tensor zero_if_nothing(const Tensor& y);
// The shift of a sum of exponentials, given its largest term. It is constant, as it cancels in the sum's logarithm and in all
// derivatives, and finite, as infinity - infinity is NaN. NaN stays NaN.
Tensor finite_shift(const Tensor& maximum);

namespace ops {

// y[...] = log sum exp x along `axis`, which y does not have; -infinity where all are -infinity.  xbar = ybar exp(x - y).
// Implements logsumexp() of ops/softmax/softmax.h for one dimension of a tensor that is not distributed.
struct LogSumExpAlong {
  int axis = 0;  // not negative
  static constexpr OpTraits traits() { return {.name = "logsumexp", .keeps_inputs = 1, .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y = exp(x - a) b;  xbar = ybar y,  abar = -sum ybar y,  bbar = sum ybar exp(x - a), summed over the dimensions along which a
// and b repeat.
struct ExpScaled {
  static constexpr OpTraits traits() { return {.name = "exp_scaled", .keeps_inputs = 3, .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
