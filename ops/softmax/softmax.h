#pragma once
// Softmax along one dimension, stable for any finite input.

#include "framework/engine/op.h"

namespace mpigrad {

// y = exp(x) / sum of exp(x) along `axis`, and log y. A negative axis counts from the end. Errors: elements that are not
// floating-point numbers, no such dimension, an axis that is split over ranks, a partial sum.
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
// log(sum(exp(x))) over the dimensions; -infinity where all elements are -infinity
Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, bool keep = false);

namespace ops {

// Along the last dimension:  xbar = y (ybar - sum ybar y)
struct Softmax {
  static constexpr OpTraits traits() { return {.name = "softmax", .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// xbar = ybar - exp(y) sum ybar
struct LogSoftmax {
  static constexpr OpTraits traits() { return {.name = "log_softmax", .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
