#include "comm/collectives/reductions.h"

#include <numeric>

#include "comm/collectives/scan.h"
#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {

Tensor winners(const Tensor& x, const Tensor& m, const Communicator& comm, Ties ties) {
  Untaped scope;
  const auto wins = cast(attains(x, m), x.dtype());
  if (ties == Ties::split) return constant(wins / maximum(allreduce(wins, comm), ones_like(wins)));
  return constant(wins * cast(equal(exscan(wins, comm), zeros_like(wins)), x.dtype()));
}

void AllReduceBy::run(Inputs in, Outputs out) const {
  if (comm.moves(in[0])) comm.transport(in[0].device()).allreduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), op);
}
Tensors AllReduceBy::vjp(const Replay& at, Inputs g) const {
  return {allreduce(g[0], comm) * winners(at.input(0), at.output(0), comm, ties)};
}

void ReduceBy::run(Inputs in, Outputs out) const {
  if (comm.rank() != root) detail::zero_bytes(out[0].device(), out[0].raw(), out[0].bytes());
  if (comm.moves(in[0]))
    comm.transport(in[0].device()).reduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), op, root);
}
Tensors ReduceBy::vjp(const Replay& at, Inputs g) const {
  const auto extreme = [&] {
    Untaped scope;
    return bcast(at.output(0), comm, root);
  }();
  return {bcast(g[0], comm, root) * winners(at.input(0), extreme, comm, ties)};
}

void ReduceScatterBy::run(Inputs in, Outputs out) const {
  detail::run({.kind = CollectiveKind::reduce_scatter, .op = op, .rows = rows}, in[0], out[0], comm);
}
Tensors ReduceScatterBy::vjp(const Replay& at, Inputs g) const {
  const auto extreme = [&] {
    Untaped scope;
    return allgather(at.output(0), comm, rows);
  }();
  return {allgather(g[0], comm, rows) * winners(at.input(0), extreme, comm, ties)};
}

Tensors LocatedValue::vjp(const Replay&, Inputs g) const { return {allreduce(g[0], comm) * weight}; }

}  // namespace ops

namespace {

// The last rank's prefix product, sent to the root; zeros elsewhere.
Tensor product_at(const Tensor& x, const Communicator& comm, int root) {
  const int last = comm.size() - 1, r = comm.rank();
  return sendrecv(scan(x, comm, ReduceOp::prod), comm, {.dest = r == last ? root : -1, .source = r == root ? last : -1});
}

}  // namespace

Tensor allreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties) {
  require_fits("allreduce", x, op);
  if (op == ReduceOp::sum) return allreduce(x, comm);
  if (op == ReduceOp::avg) return allreduce(x, comm) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) return bcast(scan(x, comm, op), comm, comm.size() - 1);
  return mpigrad::apply(ops::AllReduceBy{comm, plain(op), ties}, {x});
}

Tensor reduce(const Tensor& x, const Communicator& comm, int root, ReduceOp op, Ties ties) {
  require(root >= 0 && root < comm.size(), "[reduce] root {} is not one of {} ranks", root, comm.size());
  require_fits("reduce", x, op);
  if (op == ReduceOp::sum) return reduce(x, comm, root);
  if (op == ReduceOp::avg) return reduce(x, comm, root) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) return product_at(x, comm, root);
  return mpigrad::apply(ops::ReduceBy{comm, root, plain(op), ties}, {x});
}

Tensor reduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows, ReduceOp op, Ties ties) {
  require_fits("reduce_scatter", x, op);
  if (op == ReduceOp::sum) return reduce_scatter(x, comm, rows);
  if (op == ReduceOp::avg) return reduce_scatter(x, comm, rows) / comm.size();
  if (op == ReduceOp::prod && is_floating(x.dtype())) {
    ops::ReduceScatter{comm, rows}.infer(std::span(&x, 1));  // throws before anything is sent if the rows do not fit
    const auto begin = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
    return slice(allreduce(x, comm, op), 0, begin, begin + rows[static_cast<std::size_t>(comm.rank())]);
  }
  return mpigrad::apply(ops::ReduceScatterBy{comm, rows, plain(op), ties}, {x});
}

namespace {

Located locate(const Tensor& x, const Communicator& comm, const Tensor& index, ReduceOp op) {
  const auto call = op == ReduceOp::max ? "allreduce_maxloc" : "allreduce_minloc";
  require(!index || (index.dtype() == DType::int64 && index.shape() == x.shape()),
          "[{}] the index is int64 and of x's shape: {}, {}", call, x, index);
  Located located;
  Tensor weight;
  {
    Untaped scope;
    const auto mine = index ? index : cast(full(x.shape(), comm.rank(), DType::int64), DType::int64);
    located.value = allreduce(x, comm, op);
    const auto wins = ops::attains(x, located.value);
    const auto none = full(x.shape(), 9e18, DType::int64);
    located.index = allreduce(where(wins, mine, none), comm, ReduceOp::min);
    if (!is_floating(x.dtype())) return located;
    const auto chosen = cast(logical_and(wins, equal(mine, located.index)), x.dtype());
    weight = constant(chosen / maximum(allreduce(chosen, comm), ones_like(chosen)));
  }
  located.value = mpigrad::apply(ops::LocatedValue{comm, located.value, weight}, {x});
  return located;
}

}  // namespace

Located allreduce_maxloc(const Tensor& x, const Communicator& comm, const Tensor& index) {
  return locate(x, comm, index, ReduceOp::max);
}
Located allreduce_minloc(const Tensor& x, const Communicator& comm, const Tensor& index) {
  return locate(x, comm, index, ReduceOp::min);
}

}  // namespace mpigrad
