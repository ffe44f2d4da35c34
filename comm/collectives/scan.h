#pragma once
// Prefix reductions over ranks, in log2 P rounds (Hillis and Steele 1986). Conventions as in reductions.h.

#include "comm/collectives/collectives.h"
#include "comm/collectives/reduce_op.h"

namespace mpigrad {

// The end at which the scan starts: `up` combines the ranks s <= r, `down` the ranks s >= r.
enum class Direction : std::uint8_t { up, down };

// y_r = the sum (product, maximum, minimum) of x_s, s <= r.  For sums xbar_r = sum of ybar_s, s >= r; products are exact at zeros
// to every order; for maxima each y_s sends its cotangent to the ranks q <= s that attain it, `first` being the first from the
// end where the scan starts.
Tensor scan(const Tensor& x, const Communicator& comm, ReduceOp op = ReduceOp::sum, Ties ties = Ties::split,
            Direction direction = Direction::up);
// The same over s < r. MPI leaves y_0 undefined; here it is 0 for sums, 1 for products, -infinity for maxima and +infinity for
// minima (the type's smallest and largest number for integers).
Tensor exscan(const Tensor& x, const Communicator& comm, ReduceOp op = ReduceOp::sum, Ties ties = Ties::split,
              Direction direction = Direction::up);
// y_r = a_r y_{r-1} + b_r, y_{-1} = 0, elementwise. Its adjoint is the same scan from the other end: t_r = ybar_r + a_{r+1}
// t_{r+1}, bbar = t, abar_r = t_r y_{r-1}. scan and exscan are special cases.
Tensor affine_scan(const Tensor& a, const Tensor& b, const Communicator& comm, Direction direction = Direction::up);

// The product of all other ranks' x, without a division.
Tensor product_of_others(const Tensor& x, const Communicator& comm);

// The x of the rank `by` places before this one (after it for `down`); zeros where there is no such rank.
Tensor from_before(const Tensor& x, const Communicator& comm, int by, Direction direction = Direction::up);
// True if there is no such rank.
bool is_first(const Communicator& comm, int by, Direction direction = Direction::up);

namespace ops {

// max and min. Along the ranks the maximum changes where a new one is met; between two changes lies a run of equal y. With
// w_r = 1 where x_r attains y_r, a_r = 1 where y_r continues a run, and k_r = a_r k_{r-1} + w_r the number of those that attain
// y_r,
//   t_r = ybar_r / k_r + a_{r+1} t_{r+1},  xbar_r = w_r t_r;  ties first: without k, and w_r = 0 inside a run.
struct ScanBy {
  Communicator comm;
  CombineOp op = CombineOp::max;
  Ties ties = Ties::split;
  Direction direction = Direction::up;
  static constexpr OpTraits traits() { return {.name = "scan", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
