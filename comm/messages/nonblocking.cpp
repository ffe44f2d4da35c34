#include "comm/messages/nonblocking.h"

#include "comm/collectives/scan.h"
#include "comm/messages/transfer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"

namespace mpigrad {
namespace {

using detail::Transfer;

// A collective and its attributes; rows of alltoall are what is sent, receive_rows what arrives.
struct Spec {
  CollectiveKind kind = CollectiveKind::allreduce;
  CombineOp op = CombineOp::sum;
  int root = -1;
  Rows rows = {}, receive_rows = {};
};

Spec transposed(const Spec& spec) {
  Spec result = spec;
  switch (spec.kind) {
    case CollectiveKind::bcast: result.kind = CollectiveKind::reduce; break;
    case CollectiveKind::reduce: result.kind = CollectiveKind::bcast; break;
    case CollectiveKind::allgather: result.kind = CollectiveKind::reduce_scatter; break;
    case CollectiveKind::reduce_scatter: result.kind = CollectiveKind::allgather; break;
    case CollectiveKind::alltoall: std::swap(result.rows, result.receive_rows); break;
    case CollectiveKind::gather: result.kind = CollectiveKind::scatter; break;
    case CollectiveKind::scatter: result.kind = CollectiveKind::gather; break;
    case CollectiveKind::allreduce: break;
    case CollectiveKind::barrier: fail("[barrier] has no values, so that it has no transpose");
  }
  result.op = CombineOp::sum;  // maxima and products are taken apart afterwards
  return result;
}

// The blocking op says what comes out, and refuses what does not fit.
TensorType result_of(const Spec& spec, const Communicator& comm, const Tensor& x) {
  const Inputs in(&x, 1);
  switch (spec.kind) {
    case CollectiveKind::allgather: return ops::AllGather{comm, spec.rows}.infer(in)[0];
    case CollectiveKind::reduce_scatter: return ops::ReduceScatter{comm, spec.rows}.infer(in)[0];
    case CollectiveKind::alltoall: return ops::AllToAll{comm, spec.rows, spec.receive_rows}.infer(in)[0];
    case CollectiveKind::gather: return ops::Gather{comm, spec.root, spec.rows}.infer(in)[0];
    case CollectiveKind::scatter: return ops::Scatter{comm, spec.root, spec.rows}.infer(in)[0];
    case CollectiveKind::barrier:
    case CollectiveKind::bcast:
    case CollectiveKind::reduce:
    case CollectiveKind::allreduce: break;
  }
  return x.type();
}

void require_root(std::string_view call, const Communicator& comm, int root) {
  require(root >= 0 && root < comm.size(), "[{}] root {} is not one of {} ranks", call, root, comm.size());
}

// What all calls have: y of that type, nothing under way yet.
std::shared_ptr<Transfer> prepared(std::string_view name, const Tensor& x, const TensorType& result, bool adjoint) {
  detail::refuse_layout(name, std::span(&x, 1));
  auto transfer = std::make_shared<Transfer>();
  transfer->name = name;
  transfer->what = fmt::format("{}{}: {}", adjoint ? "adjoint " : "", name, x);
  transfer->x = x;
  transfer->y = Tensor(result, x.device());
  return transfer;
}

std::shared_ptr<Transfer> make(const Spec& spec, const Tensor& x, const Communicator& comm, bool adjoint) {
  const auto name = traits_of(spec.kind).nonblocking;
  const auto transfer = prepared(name, x, result_of(spec, comm, x), adjoint);
  auto& y = transfer->y;
  const bool rooted = spec.kind == CollectiveKind::bcast || spec.kind == CollectiveKind::reduce;
  if (rooted && y.bytes() > 0 && y.raw()) {
    if (spec.kind == CollectiveKind::reduce && comm.rank() != spec.root) detail::zero_bytes(y.device(), y.raw(), y.bytes());
    if (spec.kind == CollectiveKind::bcast && comm.rank() == spec.root)
      detail::copy_bytes(y.device(), y.raw(), x.raw(), y.bytes());
  }
  if (comm.moves(x)) {
    const auto per_row = x.rank() ? x.shape().elements(1, x.rank()) : 1;
    Rows counts = spec.rows, receive_counts = spec.receive_rows;
    for (auto* list : {&counts, &receive_counts})
      for (auto& n : *list) n *= per_row;
    const detail::RecordedCall scope(detail::is_recorded(x, adjoint));
    transfer->operation = (adjoint ? comm.side(x.device()) : comm.transport(x.device()))
                              .start({.kind = spec.kind,
                                      .in = x.raw(),
                                      .out = y.raw(),
                                      .type = x.dtype(),
                                      .op = spec.op,
                                      .root = spec.root,
                                      .count = counts.empty() ? x.elements() : 0,
                                      .counts = counts,
                                      .receive_counts = receive_counts});
  }
  // Recorded whatever ybar is: a rank that got none has zeros, which are no constant.
  transfer->start_adjoint = [spec, comm](const Tensor& ybar) {
    return detail::start(make(transposed(spec), ybar, comm, true), ybar, true, comm.open_collectives());
  };
  return transfer;
}

std::shared_ptr<Transfer> make(const ops::NeighborAllToAll& call, const Tensor& x, bool adjoint) {
  auto transfer = prepared("ineighbor_alltoall", x, call.infer(std::span(&x, 1))[0], adjoint);
  const detail::RecordedCall scope(detail::is_recorded(x, adjoint));
  const auto arrival = adjoint ? detail::Arrival() : detail::Arrival::next();
  if (arrival.known()) {
    transfer->y = arrival.known().as_variable();
  } else {
    transfer->operation = call.start(x, transfer->y);
    transfer->arrive = [arrival, y = transfer->y](const Pending&) {
      arrival.keep(y);
      return Status();
    };
  }
  transfer->start_adjoint = [call](const Tensor& ybar) {
    const ops::NeighborAllToAll back{call.topology.transposed(), call.receive_rows, call.send_rows};
    return detail::start(make(back, ybar, true), ybar, true, call.topology.comm.open_collectives());
  };
  return transfer;
}

Request start(const Spec& spec, const Tensor& x, const Communicator& comm) {
  return detail::start(make(spec, x, comm, false), x, false, comm.open_collectives());
}

}  // namespace

Request iallreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties) {
  require_fits("iallreduce", x, op);
  if (op == ReduceOp::avg) return start({}, x / comm.size(), comm);
  auto transfer = make({.op = plain(op)}, x, comm, false);
  if (op == ReduceOp::max || op == ReduceOp::min)
    transfer->finish_adjoint = [comm, ties, y = transfer->y](const Replay& at, const Tensor& sum) {
      return sum * ops::winners(at.input(0), y, comm, ties);
    };
  if (op == ReduceOp::prod)
    transfer->finish_adjoint = [comm](const Replay& at, const Tensor& sum) { return sum * product_of_others(at.input(0), comm); };
  return detail::start(std::move(transfer), x, false, comm.open_collectives());
}

Request ireduce(const Tensor& x, const Communicator& comm, int root) {
  require_root("ireduce", comm, root);
  return start({.kind = CollectiveKind::reduce, .root = root}, x, comm);
}
Request ibcast(const Tensor& x, const Communicator& comm, int root) {
  require_root("ibcast", comm, root);
  return start({.kind = CollectiveKind::bcast, .root = root}, x, comm);
}
Request igather(const Tensor& x, const Communicator& comm, int root, const Rows& rows) {
  require_root("igather", comm, root);
  return start({.kind = CollectiveKind::gather, .root = root, .rows = rows}, x, comm);
}
Request iscatter(const Tensor& x, const Communicator& comm, int root, const Rows& rows) {
  require_root("iscatter", comm, root);
  return start({.kind = CollectiveKind::scatter, .root = root, .rows = rows}, x, comm);
}
Request iallgather(const Tensor& x, const Communicator& comm, const Rows& rows) {
  return start({.kind = CollectiveKind::allgather, .rows = rows}, x, comm);
}
Request ireduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows) {
  return start({.kind = CollectiveKind::reduce_scatter, .rows = rows}, x, comm);
}
Request ialltoall(const Tensor& x, const Communicator& comm, const Rows& send_rows, const Rows& receive_rows) {
  return start({.kind = CollectiveKind::alltoall, .rows = send_rows, .receive_rows = receive_rows}, x, comm);
}

Request ineighbor_alltoall(const Tensor& x, const Topology& topology, const Rows& send_rows, const Rows& receive_rows) {
  return detail::start(make(ops::NeighborAllToAll{topology, send_rows, receive_rows}, x, false), x, false,
                       topology.comm.open_collectives());
}

}  // namespace mpigrad
