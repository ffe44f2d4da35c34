#pragma once
// Reductions over ranks besides the plain sum, and prefix reductions. Conventions as in collectives.h; S is the sum over ranks.
//
// At a maximum (minimum) that k ranks attain, each of them gets 1/k of the cotangent, or the lowest of them all of it. Which
// ranks those are is a constant to derivatives of derivatives. Products are prefix products, exact at zeros to every order.
// Integers: no derivative. Booleans: max is "or", min is "and".

#include "comm/collectives.h"

namespace mpigrad {

enum class ReduceOp : std::uint8_t { sum, avg, max, min, prod };
enum class Ties : std::uint8_t { split, first };

std::string_view name_of(ReduceOp op);

// avg:       y = S x / P;     xbar_r = S ybar / P
// max, min:  xbar_r = w_r S ybar, w_r = 1/k where x_r is extreme (ties first: 1 on the lowest such rank), else 0
// prod:      xbar_r = S ybar times the product of the other ranks' x
Tensor allreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties = Ties::split);
// The same at the root, zeros elsewhere; ybar_root takes the place of S ybar.
Tensor reduce(const Tensor& x, const Communicator& comm, int root, ReduceOp op, Ties ties = Ties::split);
// Block r of the same on rank r; all ybar one after the other take the place of S ybar.
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, ReduceOp op, Ties ties = Ties::split);

// y_r = the sum (product) of x_s, s <= r. exscan: s < r; y_0 is 0 (1), where MPI leaves it undefined.
Tensor scan(const Tensor& x, const Communicator& comm, ReduceOp op = ReduceOp::sum);
Tensor exscan(const Tensor& x, const Communicator& comm, ReduceOp op = ReduceOp::sum);
// y_r = a_r y_{r-1} + b_r, y_{-1} = 0, elementwise, by combining pairs (a, b) in log2 P rounds (Hillis and Steele 1986).
Tensor affine_scan(const Tensor& a, const Tensor& b, const Communicator& comm);

namespace ops {

// max and min; prod where nothing is differentiated.
struct AllReduceBy {
  Communicator comm;
  Reduction op = Reduction::max;
  Ties ties = Ties::split;
  static constexpr std::string_view name = "allreduce";
  static constexpr unsigned keeps_inputs = 1, keeps_outputs = 1;
  static constexpr bool communicates = true;
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReduceBy {
  Communicator comm;
  int root = 0;
  Reduction op = Reduction::max;
  Ties ties = Ties::split;
  static constexpr std::string_view name = "reduce";
  static constexpr unsigned keeps_inputs = 1, keeps_outputs = 1;
  static constexpr bool communicates = true;
  Types infer(Inputs in) const { return ReduceToRoot{comm, root}.infer(in); }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReduceScatterBy {
  Communicator comm;
  Rows rows;
  Reduction op = Reduction::max;
  Ties ties = Ties::split;
  static constexpr std::string_view name = "reduce_scatter";
  static constexpr unsigned keeps_inputs = 1, keeps_outputs = 1;
  static constexpr bool communicates = true;
  Types infer(Inputs in) const { return ReduceScatter{comm, rows}.infer(in); }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
