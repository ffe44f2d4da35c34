#pragma once
// Reductions that the user defines: a struct with
//
//   Tensor identity(const Tensor& like) const            what changes nothing, of like's type
//   Tensor combine(const Tensor& a, const Tensor& b) const   associative; a comes from lower ranks; written in ops
//   Tensor vjp(const Tensor& x, const Tensor& y, const Tensor& ybar) const   optional: the cotangent of one rank's x, given the
//                                                        result y and the sum of its cotangents
//
// Without a vjp, combine itself is differentiated. LogSumExp is the example. Conventions as in reductions.h.

#include <concepts>
#include <limits>

#include "comm/point_to_point.h"
#include "comm/scan.h"
#include "ops/elementwise.h"
#include "ops/views.h"

namespace mpigrad {

template <class R>
concept UserReduction = requires(const R& reduction, const Tensor& x) {
  { reduction.identity(x) } -> std::convertible_to<Tensor>;
  { reduction.combine(x, x) } -> std::convertible_to<Tensor>;
};
template <class R>
concept UserReductionWithVjp = UserReduction<R> && requires(const R& reduction, const Tensor& x) {
  { reduction.vjp(x, x, x) } -> std::convertible_to<Tensor>;
};

// y_r = x_0 combined with x_1 ... x_r. Differentiates combine.
template <UserReduction R>
Tensor scan(const Tensor& x, const Communicator& comm, const R& reduction) {
  Tensor y = x;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto before = from_before(y, comm, by);
    if (!is_first(comm, by)) y = reduction.combine(before, y);
  }
  return y;
}
// Of the ranks below; y_0 is the identity.
template <UserReduction R>
Tensor exscan(const Tensor& x, const Communicator& comm, const R& reduction) {
  const auto before = from_before(scan(x, comm, reduction), comm, 1);
  return is_first(comm, 1) ? reduction.identity(x).as_variable() : before;
}

namespace ops {

template <UserReductionWithVjp R>
struct AllReduceUser {
  Communicator comm;
  R reduction;
  static constexpr std::string_view name = "allreduce";
  static constexpr unsigned keeps_inputs = 1, keeps_outputs = 1;
  static constexpr bool communicates = true;
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return bcast(scan(in[0], comm, reduction), comm, comm.size() - 1).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const { return {reduction.vjp(at.input(0), at.output(0), allreduce(g[0], comm))}; }
};

}  // namespace ops

// y = all x combined, on every rank.
template <UserReduction R>
Tensor allreduce(const Tensor& x, const Communicator& comm, const R& reduction) {
  if constexpr (UserReductionWithVjp<R>) return mpigrad::apply(ops::AllReduceUser<R>{comm, reduction}, {x});
  else return bcast(scan(x, comm, reduction), comm, comm.size() - 1);
}
// At the root; zeros elsewhere, whose cotangents do not count.
template <UserReduction R>
Tensor reduce(const Tensor& x, const Communicator& comm, int root, const R& reduction) {
  require(root >= 0 && root < comm.size(), "[reduce] root {} is not one of {} ranks", root, comm.size());
  const auto y = allreduce(x, comm, reduction);
  return comm.rank() == root ? y : zeros_like(x);
}
// Block r of all x combined on rank r.
template <UserReduction R>
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, const R& reduction) {
  ops::ReduceScatter{comm, rows}.infer(std::span(&x, 1));  // refuses what does not fit before anything is sent
  std::int64_t begin = 0;
  for (int r = 0; r < comm.rank(); ++r) begin += rows[static_cast<std::size_t>(r)];
  return slice(allreduce(x, comm, reduction), 0, begin, begin + rows[static_cast<std::size_t>(comm.rank())]);
}

// y = log of the sum over ranks of exp(x_r), without overflow;  xbar_r = ybar exp(x_r - y)
struct LogSumExp {
  Tensor identity(const Tensor& like) const {
    UseDevice device(like.device());
    return full(like.shape(), -std::numeric_limits<double>::infinity(), like.dtype());
  }
  Tensor combine(const Tensor& a, const Tensor& b) const {
    const auto largest = finite(constant(maximum(constant(a), constant(b))));
    const auto sum = exp(a - largest) + exp(b - largest);
    // An empty sum is 0, whose logarithm has no derivative.
    const auto empty = equal(constant(sum), constant(zeros_like(sum)));
    return where(empty, constant(identity(sum)), log(where(empty, constant(ones_like(sum)), sum)) + largest);
  }
  Tensor vjp(const Tensor& x, const Tensor& y, const Tensor& ybar) const { return ybar * exp(x - finite(y)); }

 private:
  // Of minus infinities only, the sum is empty and every weight 0; a finite number in its place keeps NaN away.
  static Tensor finite(const Tensor& x) {
    return where(equal(x, constant(full({}, -std::numeric_limits<double>::infinity(), x.dtype()))), constant(zeros_like(x)), x);
  }
};

}  // namespace mpigrad
