#include "comm/distributed/invariant.h"

#include <numeric>

#include "comm/distributed/grid.h"
#include "comm/distributed/same_parameters.h"

namespace mpigrad {
namespace ops {
namespace {

class PendingAllReduce : public PendingCotangent {
 public:
  PendingAllReduce(Tensor in, Tensor out, Pending operation)
      : in_(std::move(in)), out_(std::move(out)), operation_(std::move(operation)) {}
  Tensor wait() override {
    operation_.wait();
    operation_ = {};
    in_ = {};
    return out_;
  }

 private:
  Tensor in_, out_;  // in_ keeps the buffer alive
  Pending operation_;
};

}  // namespace

namespace {

void check_replicated(std::string_view what, const Tensor& x, const Communicator& comm) {
  if (!comm.moves(x)) return;
  Tensor host;
  comm.transport().require_same(what, [&] {
    host = x.device() == DeviceKind::cuda ? detail::copied(x, DeviceKind::cpu) : x;
    return std::span<const std::byte>(host.raw(), static_cast<std::size_t>(host.bytes()));
  });
}

}  // namespace

Tensor Replicate::view(Inputs in) const {
  check_replicated("the input of replicate", in[0], comm);
  return in[0].as_variable();
}
// Cotangents of replicated tensors are replicated. The results of these vjps are replicate and shard, which check no further.
Tensors AllReduceInvariant::vjp(const Replay&, Inputs g) const {
  check_replicated("the cotangent of allreduce_invariant", g[0], comm);
  return {replicate(g[0], comm)};
}
Tensors AllGatherInvariant::vjp(const Replay&, Inputs g) const {
  check_replicated("the cotangent of allgather_invariant", g[0], comm);
  return {shard(g[0], comm, rows)};
}

std::unique_ptr<PendingCotangent> Replicate::start_reduction(const Tensor& cotangent) const {
  const bool in_place = sole_owner(cotangent);  // before there is a copy of the handle
  const Tensor out = in_place ? cotangent : Tensor(cotangent.type(), cotangent.device());
  Pending operation;
  if (comm.moves(cotangent))
    operation = comm.reductions(cotangent.device())
                    .start_allreduce(cotangent.raw(), out.raw(), cotangent.elements(), cotangent.dtype(), CombineOp::sum);
  return std::make_unique<PendingAllReduce>(cotangent, out, std::move(operation));
}

std::unique_ptr<PendingCotangent> GatherStored::start_reduction(const Tensor& cotangent) const {
  fail("[allgather] a cotangent of stored rows is reduced in buckets: {}", cotangent);
}

Types Shard::infer(Inputs in) const {
  require(in[0].rank() >= 1 && static_cast<int>(rows.size()) == comm.size(), "[shard] {} numbers of rows for {} ranks: {}",
          rows.size(), comm.size(), in[0]);
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  require(in[0].dim(0) == all, "[shard] the blocks have {} rows in all: {}", all, in[0]);
  Shape shape = in[0].shape();
  shape[0] = rows[static_cast<std::size_t>(comm.rank())];
  return {{shape, in[0].dtype()}};
}

void Shard::run(Inputs in, Outputs out) const {
  check_replicated("the input of shard", in[0], comm);
  if (!in[0].raw() || out[0].bytes() == 0) return;
  const auto before = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
  const auto row_bytes = in[0].shape().elements(1, in[0].rank()) * size_of(in[0].dtype());
  detail::copy_bytes(in[0].device(), out[0].raw(), in[0].raw() + before * row_bytes, out[0].bytes());
}

void Once::run(Inputs in, Outputs out) const {
  if (!in[0].raw()) return;
  if (comm.rank() == 0) detail::copy_bytes(in[0].device(), out[0].raw(), in[0].raw(), in[0].bytes());
  else detail::zero_bytes(out[0].device(), out[0].raw(), out[0].bytes());
}
Tensors Once::vjp(const Replay&, Inputs g) const { return {mpigrad::apply(FromFirst{comm}, {g[0]})}; }

}  // namespace ops

Tensor replicate(const Tensor& x, const Communicator& comm) {
  const auto make = [&] { return mpigrad::apply(ops::Replicate{comm}, {x.without_layout()}); };
  if (comm.size() == 1) return x.without_layout();
  detail::note_replicated(x, comm);
  auto* tape = Tape::innermost();
  return tape ? tape->memoised(x.id(), comm.key(), make) : make();
}

Tensor allreduce_invariant(const Tensor& x, const Communicator& comm) {
  return mpigrad::apply(ops::AllReduceInvariant{comm}, {x});
}

Tensor shard(const Tensor& x, const Communicator& comm, Rows rows) {
  require(x.rank() >= 1, "[shard] a scalar has no rows: {}", x);
  if (rows.empty()) {
    const auto cuts = balanced_cuts(x.dim(0), comm.size());
    for (std::size_t r = 1; r < cuts.size(); ++r) rows.push_back(cuts[r] - cuts[r - 1]);
  }
  return mpigrad::apply(ops::Shard{comm, std::move(rows)}, {x});
}

Tensor allgather_invariant(const Tensor& x, const Communicator& comm, Rows rows) {
  if (rows.empty()) rows = rows_of_all(x, comm);
  return mpigrad::apply(ops::AllGatherInvariant{comm, std::move(rows)}, {x});
}

Tensor once(const Tensor& x, const Communicator& comm) { return mpigrad::apply(ops::Once{comm}, {x.without_layout()}); }

Tensor once(const Tensor& x, const Tensor& partial) {
  require(partial.layout() != nullptr, "[once] the partial sum has no layout; name the communicator instead: {}", partial);
  Layout layout = *partial.layout();
  require(!x.layout() || x.layout()->grid == layout.grid, "[once] the value and the partial sum are on different grids: {}, {}",
          x, partial);
  std::vector<int> axes;
  for (std::size_t a = 0; a < layout.axes.size(); ++a) {
    require(layout.axes[a].placement != Placement::split, "[once] needs a partial sum: {}", partial);
    const auto own = x.layout() ? x.layout()->axes[a].placement : Placement::replicated;
    require(own != Placement::split, "[once] of a value that is split: {}", x);
    if (own == Placement::partial) layout.axes[a] = {Placement::partial, -1, {}};
    else if (layout.axes[a].placement == Placement::partial) axes.push_back(static_cast<int>(a));
  }
  layout.global = x.shape();
  return once(x, grid_of(layout).along(axes)).with_layout(std::make_shared<Layout>(std::move(layout)));
}

}  // namespace mpigrad
