#include "comm/reductions.h"

#include <cstring>
#include <numeric>

#include "ops/elementwise.h"
#include "ops/views.h"

namespace mpigrad {
namespace ops {
namespace {

// How much of the cotangent of the extreme value m goes to this rank's x.
Tensor winners(const Tensor& x, const Tensor& m, const Communicator& comm, Ties ties) {
  Untaped scope;
  const auto wins = cast(equal(x, m), x.dtype());
  // Where NaN is extreme nobody equals it; the cotangent is lost there, as the value is.
  if (ties == Ties::split) return constant(wins / maximum(allreduce(wins, comm), ones_like(wins)));
  return constant(wins * cast(equal(exscan(wins, comm), zeros_like(wins)), x.dtype()));
}

}  // namespace

void AllReduceBy::run(Inputs in, Outputs out) const {
  if (comm.moves(in[0])) comm.transport().allreduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), op);
}
Tensors AllReduceBy::vjp(const Replay& at, Inputs g) const {
  return {allreduce(g[0], comm) * winners(at.input(0), at.output(0), comm, ties)};
}

void ReduceBy::run(Inputs in, Outputs out) const {
  if (out[0].raw() && comm.rank() != root) std::memset(out[0].raw(), 0, static_cast<std::size_t>(out[0].bytes()));
  if (comm.moves(in[0])) comm.transport().reduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), op, root);
}
Tensors ReduceBy::vjp(const Replay& at, Inputs g) const {
  const auto extreme = [&] {
    Untaped scope;
    return bcast(at.output(0), comm, root);
  }();
  return {bcast(g[0], comm, root) * winners(at.input(0), extreme, comm, ties)};
}

void ReduceScatterBy::run(Inputs in, Outputs out) const {
  if (!comm.moves(in[0])) return;
  Rows counts = rows;
  for (auto& n : counts) n *= in[0].shape().elements(1, in[0].rank());
  comm.transport().reduce_scatter(in[0].raw(), out[0].raw(), counts, in[0].dtype(), op);
}
Tensors ReduceScatterBy::vjp(const Replay& at, Inputs g) const {
  const auto extreme = [&] {
    Untaped scope;
    return allgather(at.output(0), comm, rows);
  }();
  return {allgather(g[0], comm, rows) * winners(at.input(0), extreme, comm, ties)};
}

}  // namespace ops

namespace {

Reduction plain(ReduceOp op) {
  return op == ReduceOp::prod ? Reduction::prod : op == ReduceOp::max ? Reduction::max : Reduction::min;
}

void require_mean(std::string_view call, const Tensor& x) {
  require(is_floating(x.dtype()), "[{}] the average of integers is none; cast first: {}", call, x);
}

// What arrives from rank `by` below, zeros on the ranks that have none.
Tensor from_below(const Tensor& x, const Communicator& comm, int by) {
  const int r = comm.rank();
  return sendrecv(x, comm, {.dest = r + by < comm.size() ? r + by : -1, .source = r - by >= 0 ? r - by : -1});
}

// The last rank's prefix product, sent to the root; zeros elsewhere.
Tensor product_at(const Tensor& x, const Communicator& comm, int root) {
  const int last = comm.size() - 1, r = comm.rank();
  return sendrecv(scan(x, comm, ReduceOp::prod), comm, {.dest = r == last ? root : -1, .source = r == root ? last : -1});
}

void require_prefix(std::string_view call, ReduceOp op) {
  require(op == ReduceOp::sum || op == ReduceOp::prod, "[{}] of {} is not there; sum and prod are", call, name_of(op));
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::avg: return "avg";
    case ReduceOp::max: return "max";
    case ReduceOp::min: return "min";
    case ReduceOp::prod: return "prod";
  }
  return "?";
}

Tensor allreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties) {
  if (op == ReduceOp::sum) return allreduce(x, comm);
  if (op == ReduceOp::avg) return require_mean("allreduce", x), allreduce(x, comm) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) return bcast(scan(x, comm, op), comm, comm.size() - 1);
  return mpigrad::apply(ops::AllReduceBy{comm, plain(op), ties}, {x});
}

Tensor reduce(const Tensor& x, const Communicator& comm, int root, ReduceOp op, Ties ties) {
  require(root >= 0 && root < comm.size(), "[reduce] root {} is not one of {} ranks", root, comm.size());
  if (op == ReduceOp::sum) return reduce(x, comm, root);
  if (op == ReduceOp::avg) return require_mean("reduce", x), reduce(x, comm, root) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) return product_at(x, comm, root);
  return mpigrad::apply(ops::ReduceBy{comm, root, plain(op), ties}, {x});
}

Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, ReduceOp op, Ties ties) {
  if (op == ReduceOp::sum) return reduce_scatter(x, comm, rows);
  if (op == ReduceOp::avg) return require_mean("reduce_scatter", x), reduce_scatter(x, comm, rows) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) {
    ops::ReduceScatter{comm, rows}.infer(std::span(&x, 1));  // refuses what does not fit before anything is sent
    const auto begin = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
    return slice(allreduce(x, comm, op), 0, begin, begin + rows[static_cast<std::size_t>(comm.rank())]);
  }
  return mpigrad::apply(ops::ReduceScatterBy{comm, rows, plain(op), ties}, {x});
}

Tensor scan(const Tensor& x, const Communicator& comm, ReduceOp op) {
  require_prefix("scan", op);
  Tensor y = x;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto below = from_below(y, comm, by);
    if (comm.rank() < by) continue;
    y = op == ReduceOp::sum ? below + y : below * y;
  }
  return y;
}

Tensor exscan(const Tensor& x, const Communicator& comm, ReduceOp op) {
  require_prefix("exscan", op);
  const auto below = from_below(scan(x, comm, op), comm, 1);
  if (op == ReduceOp::prod && comm.rank() == 0) return constant(ones_like(x));
  return below;
}

Tensor affine_scan(const Tensor& a, const Tensor& b, const Communicator& comm) {
  require(a.type() == b.type(), "[affine_scan] a is {}, b is {}", a, b);
  Tensor factor = a, y = b;
  for (int by = 1; by < comm.size(); by *= 2) {
    const auto factor_below = from_below(factor, comm, by), y_below = from_below(y, comm, by);
    if (comm.rank() < by) continue;
    y = factor * y_below + y;
    factor = factor_below * factor;
  }
  return y;
}

}  // namespace mpigrad
