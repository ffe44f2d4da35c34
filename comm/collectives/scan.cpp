#include "comm/collectives/scan.h"

#include <algorithm>
#include <limits>

#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {

bool is_first(const Communicator& comm, int by, Direction direction) {
  return direction == Direction::up ? comm.rank() < by : comm.rank() + by >= comm.size();
}

Tensor from_before(const Tensor& x, const Communicator& comm, int by, Direction direction) {
  const int r = comm.rank(), step = direction == Direction::up ? by : -by;
  const auto peer = [&](int rank) { return rank >= 0 && rank < comm.size() ? rank : proc_null; };
  return sendrecv(x, comm, {.dest = peer(r + step), .source = peer(r - step)});
}

namespace {

Direction other(Direction direction) { return direction == Direction::up ? Direction::down : Direction::up; }

Tensor inclusive(const Tensor& x, const Communicator& comm, CombineOp op, Direction direction) {
  Tensor y = x;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto before = from_before(y, comm, by, direction);
    if (!is_first(comm, by, direction)) y = combined(before, y, op);
  }
  return y;
}

// The neutral element of op.
Tensor identity_of(const Tensor& x, ReduceOp op) {
  if (op == ReduceOp::sum) return zeros_like(x);
  if (op == ReduceOp::prod) return ones_like(x);
  const bool max = plain(op) == CombineOp::max;
  if (is_floating(x.dtype())) {
    UseDevice device(x.device());
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return full(x.shape(), max ? -infinity : infinity, x.dtype());
  }
  if (x.device() == DeviceKind::dry) return Tensor::where(x, x.type());
  Tensor y(x.type(), DeviceKind::cpu);  // filled on the host: a double does not hold all integers
  if (y.raw())
    visit_integral(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using Limits = std::numeric_limits<T>;
      std::fill_n(y.mutable_data<T>(), y.elements(), max ? Limits::lowest() : Limits::max());
    });
  return x.device() == DeviceKind::cuda ? detail::copied(y, x.device()) : y;
}

void require_op(std::string_view call, const Tensor& x, ReduceOp op) {
  require_fits(call, x, op);
  require(op != ReduceOp::avg, "[{}] there is no prefix average; divide the prefix sum: {}", call, x);
  require(has_prefixes(op), "[{}] there are no prefixes by {}: {}", call, name_of(op), x);
  require(x.dtype() != DType::boolean || plain(op) == CombineOp::max || plain(op) == CombineOp::min,
          "[{}] booleans reduce by logical_or and logical_and, not by {}: {}", call, name_of(op), x);
}

}  // namespace

namespace ops {

Tensor ScanBy::view(Inputs in) const {
  Untaped scope;
  return inclusive(in[0], comm, op, direction).as_variable();
}

Tensors ScanBy::vjp(const Replay& at, Inputs g) const {
  const auto &x = at.input(0), &y = at.output(0);
  Tensor wins, continues, cotangent = g[0];
  {
    Untaped scope;
    wins = constant(cast(attains(x, y), x.dtype()));
    const auto before = from_before(y, comm, 1, direction);
    continues = constant(is_first(comm, 1, direction) ? zeros_like(x) : cast(attains(before, y), x.dtype()));
    if (ties == Ties::first) wins = constant(wins * (1.0 - continues));
  }
  if (ties == Ties::split) {
    const auto attaining = affine_scan(continues, wins, comm, direction);  // of constants
    cotangent = cotangent / maximum(attaining, constant(ones_like(x)));
  }
  const auto continued = from_before(continues, comm, 1, mpigrad::other(direction));
  return {affine_scan(continued, cotangent, comm, mpigrad::other(direction)) * wins};
}

}  // namespace ops

Tensor scan(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties, Direction direction) {
  require_op("scan", x, op);
  if (plain(op) == CombineOp::max || plain(op) == CombineOp::min)
    return mpigrad::apply(ops::ScanBy{comm, plain(op), ties, direction}, {x});
  return inclusive(x, comm, plain(op), direction);
}

Tensor exscan(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties, Direction direction) {
  require_op("exscan", x, op);
  const auto before = from_before(scan(x, comm, op, ties, direction), comm, 1, direction);
  // The first rank has received zeros, which is right for sums. They are not a constant, because the other ranks' values are not.
  return is_first(comm, 1, direction) && op != ReduceOp::sum ? identity_of(x, op) : before;
}

Tensor affine_scan(const Tensor& a, const Tensor& b, const Communicator& comm, Direction direction) {
  require(a.type() == b.type(), "[affine_scan] a is {}, b is {}", a, b);
  Tensor factor = a, y = b;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto factor_before = from_before(factor, comm, by, direction), y_before = from_before(y, comm, by, direction);
    if (is_first(comm, by, direction)) continue;
    y = factor * y_before + y;
    factor = factor_before * factor;
  }
  return y;
}

Tensor product_of_others(const Tensor& x, const Communicator& comm) {
  return exscan(x, comm, ReduceOp::prod) * exscan(x, comm, ReduceOp::prod, Ties::split, Direction::down);
}

}  // namespace mpigrad
