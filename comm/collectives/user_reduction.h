#pragma once
// User-defined reductions: a struct with
//
//   Tensor identity(const Tensor& like) const            the neutral element, of like's type
//   Tensor combine(const Tensor& a, const Tensor& b) const   associative; a comes from lower ranks; written in ops
//   Tensor vjp(const Tensor& x, const Tensor& y, const Tensor& ybar) const   optional: the cotangent of one rank's x, given the
//                                                        result y and the sum of its cotangents
//   Tensor carry(const Tensor& before, const Tensor& y) const   optional in addition to vjp, where elements do not mix: the
//                                                        derivative of a prefix y by the prefix before it
//
// Without a vjp, and in scans without a carry, combine itself is differentiated. LogSumExp is an example. Conventions as in
// reductions.h.

#include <concepts>
#include <limits>

#include "comm/collectives/scan.h"
#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/logsumexp.h"
#include "ops/views/views.h"

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
template <class R>
concept UserReductionWithCarry = UserReductionWithVjp<R> && requires(const R& reduction, const Tensor& x) {
  { reduction.carry(x, x) } -> std::convertible_to<Tensor>;
};

namespace ops {

// y_r = x_0 combined with x_1 ... x_r, in log2 P rounds of messages (Hillis and Steele 1986). A tape records the ops of
// combine().
template <UserReduction R>
Tensor prefixes(const Tensor& x, const Communicator& comm, const R& reduction) {
  Tensor y = x;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto before = from_before(y, comm, by);
    if (!is_first(comm, by)) y = reduction.combine(before, y);
  }
  return y;
}

// With a_r the derivative of y_r by y_{r-1}:  t_r = ybar_r + a_{r+1} t_{r+1},  xbar_r = vjp(x_r, y_r, t_r)
template <UserReductionWithCarry R>
struct ScanUser {
  Communicator comm;
  R reduction;
  static constexpr OpTraits traits() { return {.name = "scan", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return prefixes(in[0], comm, reduction).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    const auto &x = at.input(0), &y = at.output(0);
    const auto before = from_before(y, comm, 1);
    const auto a = is_first(comm, 1) ? zeros_like(y) : reduction.carry(before, y);
    const auto t = affine_scan(from_before(a, comm, 1, Direction::down), g[0], comm, Direction::down);
    return {reduction.vjp(x, y, t)};
  }
};

}  // namespace ops

// y_r = x_0 combined with x_1 ... x_r.
template <UserReduction R>
Tensor scan(const Tensor& x, const Communicator& comm, const R& reduction) {
  if constexpr (UserReductionWithCarry<R>) return mpigrad::apply(ops::ScanUser<R>{comm, reduction}, {x});
  else return ops::prefixes(x, comm, reduction);
}
// The same over the ranks below; y_0 is the identity.
template <UserReduction R>
Tensor exscan(const Tensor& x, const Communicator& comm, const R& reduction) {
  if constexpr (UserReductionWithCarry<R>) {  // moves x first, so that an infinity of the last rank takes no part
    const auto moved = from_before(x, comm, 1);
    return scan(is_first(comm, 1) ? reduction.identity(x).as_variable() : moved, comm, reduction);
  }
  const auto before = from_before(scan(x, comm, reduction), comm, 1);
  return is_first(comm, 1) ? reduction.identity(x).as_variable() : before;
}

namespace ops {

template <UserReductionWithVjp R>
struct AllReduceUser {
  Communicator comm;
  R reduction;
  static constexpr OpTraits traits() {
    return {.name = "allreduce", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true};
  }
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
// y at the root; zeros elsewhere, whose cotangents are ignored.
template <UserReduction R>
Tensor reduce(const Tensor& x, const Communicator& comm, int root, const R& reduction) {
  require(root >= 0 && root < comm.size(), "[reduce] root {} is not one of {} ranks", root, comm.size());
  const auto y = allreduce(x, comm, reduction);
  return comm.rank() == root ? y : zeros_like(x);
}
// Block r of all x combined on rank r.
template <UserReduction R>
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, const R& reduction) {
  ops::ReduceScatter{comm, rows}.infer(std::span(&x, 1));  // throws before anything is sent if the rows do not fit
  std::int64_t begin = 0;
  for (int r = 0; r < comm.rank(); ++r) begin += rows[static_cast<std::size_t>(r)];
  return slice(allreduce(x, comm, reduction), 0, begin, begin + rows[static_cast<std::size_t>(comm.rank())]);
}

// y = log of the sum over ranks of exp(x_r), without overflow;  xbar_r = ybar exp(x_r - y). Infinities and NaN are treated as by
// logsumexp() of ops/softmax/softmax.h. If a rank has infinity, the result is infinity; the cotangent of the infinity is NaN, and
// that of finite numbers 0. If all ranks have -infinity, the result is -infinity and the cotangents are 0.
struct LogSumExp {
  Tensor identity(const Tensor& like) const {
    UseDevice device(like.device());
    return full(like.shape(), -std::numeric_limits<double>::infinity(), like.dtype());
  }
  Tensor combine(const Tensor& a, const Tensor& b) const {
    const auto largest = finite_shift(maximum(constant(a), constant(b)));
    const auto sum = exp(a - largest) + exp(b - largest);
    // An empty sum is 0, whose logarithm has no derivative.
    const auto empty = equal(constant(sum), constant(zeros_like(sum)));
    return where(empty, constant(identity(sum)), log(where(empty, constant(ones_like(sum)), sum)) + largest);
  }
  Tensor vjp(const Tensor& x, const Tensor& y, const Tensor& ybar) const { return ybar * exp(x - zero_if_nothing(y)); }
  // exp(before - y), and 1 where an infinity continues.
  Tensor carry(const Tensor& before, const Tensor& y) const {
    UseDevice device(y.device());
    const auto infinity = constant(full({}, std::numeric_limits<double>::infinity(), y.dtype()));
    const auto goes_on = logical_and(equal(before, y), equal(abs(constant(y)), infinity));
    return exp(where(goes_on, constant(zeros_like(y)), before - y));
  }
};

}  // namespace mpigrad
