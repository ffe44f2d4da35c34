#include "comm/messages/nonblocking.h"

#include "comm/collectives/scan.h"
#include "comm/messages/transfer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"

namespace mpigrad {
namespace {

using detail::Transfer;

detail::BlockCall transposed(detail::BlockCall call) {
  const auto blocks = block_traits_of(call.kind);
  require(blocks.in != BlockRows::none, "[{}] moves no values and has no transpose", name_of(call.kind));
  call.kind = blocks.transpose;
  call.op = CombineOp::sum;  // cotangents of maxima and products are weighted afterwards
  if (blocks.in == BlockRows::sent) std::swap(call.rows, call.receive_rows);
  return call;
}

// The common part of all calls: y of that type, no operation yet.
std::shared_ptr<Transfer> prepared(std::string_view name, const Tensor& x, const TensorType& result, bool adjoint) {
  detail::refuse_layout(name, std::span(&x, 1));
  auto transfer = std::make_shared<Transfer>();
  transfer->name = name;
  transfer->what = fmt::format("{}{}: {}", adjoint ? "adjoint " : "", name, to_string(x));
  transfer->x = x;
  transfer->y = Tensor::where(x, result);
  return transfer;
}

std::shared_ptr<Transfer> make(const detail::BlockCall& call, const Tensor& x, const Communicator& comm, bool adjoint) {
  const auto traits = traits_of(call.kind);
  const auto transfer = prepared(traits.nonblocking, x, detail::result_type(call, x, comm), adjoint);
  auto& y = transfer->y;
  if (traits.rooted() && block_traits_of(call.kind).out == BlockRows::alike && y.bytes() > 0 && y.raw()) {
    const bool at_root = comm.rank() == call.root;  // the root has the sum of a reduce, and the values that a bcast sends
    if (traits.reduces && !at_root) detail::zero_bytes(y.device(), y.raw(), y.bytes());
    if (!traits.reduces && at_root) detail::copy_bytes(y.device(), y.raw(), x.raw(), y.bytes());
  }
  if (comm.moves(x)) {
    const detail::RecordedCall scope(detail::is_recorded(x, adjoint));
    detail::with_arguments(call, x, y, [&](const Collective& arguments) {
      transfer->operation = (adjoint ? comm.side(x.device()) : comm.transport(x.device())).start(arguments);
    });
  }
  // Recorded whatever ybar is: a rank without a cotangent sends zeros, which are not a constant.
  transfer->start_adjoint = [call, comm](const Tensor& ybar) {
    return detail::start(make(transposed(call), ybar, comm, true), ybar, true, comm.open_collectives());
  };
  return transfer;
}

std::shared_ptr<Transfer> neighbor_transfer(const ops::NeighborAllToAll& call, const Tensor& x, bool adjoint) {
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
    return detail::start(neighbor_transfer(back, ybar, true), ybar, true, call.topology.comm.open_collectives());
  };
  return transfer;
}

}  // namespace

Request detail::start_collective(const BlockCall& call, const Tensor& x, const Communicator& comm) {
  const auto traits = traits_of(call.kind);
  require(!traits.rooted() || (call.root >= 0 && call.root < comm.size()), "[{}] root {} is not one of {} ranks",
          traits.nonblocking, call.root, comm.size());
  return start(make(call, x, comm, false), x, false, comm.open_collectives());
}

Request iallreduce(const Tensor& x, const Communicator& comm, ReduceOp op, Ties ties) {
  require_fits("iallreduce", x, op);
  if (op == ReduceOp::avg) return detail::start_collective({}, x / comm.size(), comm);
  auto transfer = make({.op = plain(op)}, x, comm, false);
  if (op == ReduceOp::max || op == ReduceOp::min)
    transfer->finish_adjoint = [comm, ties, y = transfer->y](const Replay& at, const Tensor& sum) {
      return sum * ops::winners(at.input(0), y, comm, ties);
    };
  if (op == ReduceOp::prod)
    transfer->finish_adjoint = [comm](const Replay& at, const Tensor& sum) { return sum * product_of_others(at.input(0), comm); };
  return detail::start(std::move(transfer), x, false, comm.open_collectives());
}

Request ineighbor_alltoall(const Tensor& x, const Topology& topology, const Rows& send_rows, const Rows& receive_rows) {
  return detail::start(neighbor_transfer(ops::NeighborAllToAll{topology, send_rows, receive_rows}, x, false), x, false,
                       topology.comm.open_collectives());
}

}  // namespace mpigrad
