#pragma once
// Reductions over ranks besides the plain sum. Conventions as in collectives.h; S is the sum over ranks.
//
// At a maximum (minimum) that k ranks attain, each of the k ranks gets 1/k of the cotangent (Ties::split), or the lowest one gets
// all of it (Ties::first). Where the maximum is NaN, the k ranks are those whose x is NaN (see ops/elementwise/elementwise.h).
// The choice of ranks is a constant in second derivatives. Products are prefix products, exact at zeros to every order. Integers
// carry no derivative. Logical reductions take booleans, and bitwise ones (band, bor, bxor) integers and booleans; other types
// are an Error.

#include "comm/collectives/collectives.h"
#include "comm/collectives/reduce_op.h"

namespace mpigrad {

// avg:       y = S x / P;     xbar_r = S ybar / P
// max, min:  xbar_r = w_r S ybar, w_r = 1/k where x_r is extreme (ties first: 1 on the lowest such rank), else 0
// prod:      xbar_r = S ybar times the product of the other ranks' x
Tensor allreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties = Ties::split);
// The same at the root, zeros elsewhere; ybar_root replaces S ybar.
Tensor reduce(const Tensor& x, const Communicator& comm, int root, ReduceOp op, Ties ties = Ties::split);
// Block r of the reduction on rank r; all ybar one after the other replace S ybar.
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, ReduceOp op, Ties ties = Ties::split);

// The extreme value and its index, MPI's MAXLOC and MINLOC: among several ranks that attain it, the one with the lowest index
// wins and gets the cotangent; ranks with equal indices share it. index: int64, of x's shape; default: the rank. It carries no
// derivative.
struct Located {
  Tensor value, index;
};
Located allreduce_maxloc(const Tensor& x, const Communicator& comm, const Tensor& index = {});
Located allreduce_minloc(const Tensor& x, const Communicator& comm, const Tensor& index = {});

namespace ops {

// The share of the cotangent of the extreme value m that this rank's x gets: a constant.
Tensor winners(const Tensor& x, const Tensor& m, const Communicator& comm, Ties ties);

// max and min; prod where nothing is differentiated.
struct AllReduceBy {
  Communicator comm;
  CombineOp op = CombineOp::max;
  Ties ties = Ties::split;
  static constexpr OpTraits traits() {
    return {.name = "allreduce", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true};
  }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReduceBy {
  Communicator comm;
  int root = 0;
  CombineOp op = CombineOp::max;
  Ties ties = Ties::split;
  static constexpr OpTraits traits() { return {.name = "reduce", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true}; }
  Types infer(Inputs in) const { return ReduceToRoot{comm, root}.infer(in); }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReduceScatterBy {
  Communicator comm;
  Rows rows;
  CombineOp op = CombineOp::max;
  Ties ties = Ties::split;
  static constexpr OpTraits traits() {
    return {.name = "reduce_scatter", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true};
  }
  Types infer(Inputs in) const { return ReduceScatter{comm, rows}.infer(in); }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// The value of MAXLOC. The value and each rank's weight of the cotangent are computed beforehand.
struct LocatedValue {
  Communicator comm;
  Tensor value, weight;
  static constexpr OpTraits traits() { return {.name = "allreduce_loc", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs) const { return value.as_variable(); }
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
