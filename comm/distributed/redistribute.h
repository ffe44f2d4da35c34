#pragma once
// Converts a tensor from any layout to any layout that has no partial sums, over the same ranks.

#include "comm/distributed/grid.h"
#include "framework/engine/op.h"

namespace mpigrad {

// x must have a layout; the result has `to`. Split and replicated are converted into each other by an exchange of boxes in which
// the first of the ranks that hold a value sends it; the vjp is the redistribution back. A partial sum is converted to replicated
// by allreduce_invariant, or to blocks of any whole dimension by a reduce-scatter; only once() makes a partial sum.
Tensor redistribute(const Tensor& x, const LayoutPtr& to);
// The whole tensor on every rank.
Tensor gather_all(const Tensor& x);

namespace ops {

// Permutes and copies one logical value between layouts that have no partial sums. The transpose, in the space where a replicated
// value counts once, is the redistribution back.
struct Redistribute {
  LayoutPtr from, to;
  static constexpr OpTraits traits() { return {.name = "redistribute", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {mpigrad::apply(Redistribute{to, from}, {g[0]})}; }
};

}  // namespace ops
}  // namespace mpigrad
