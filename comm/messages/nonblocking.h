#pragma once
// Differentiable non-blocking collectives: the adjoint of `wait` starts the transposed collective, the adjoint of the call
// completes it. All ranks make these calls in the same order; they may wait in different orders. Rows as in collectives.h, but
// they must always be given: exchanging them would block.

#include "comm/collectives/neighbor.h"
#include "comm/collectives/reductions.h"
#include "comm/messages/request.h"

namespace mpigrad {

namespace detail {
// Starts any of these collectives, with sums. Error: the rows, the root or x do not fit.
Request start_collective(const BlockCall& call, const Tensor& x, const Communicator& comm);
}  // namespace detail

// As allreduce, for every ReduceOp.
Request iallreduce(const Tensor& x, const Communicator& comm, ReduceOp op = ReduceOp::sum, Ties ties = Ties::split);
// y_root = S x, zeros elsewhere;  its adjoint is ibcast, and the other way round
inline Request ireduce(const Tensor& x, const Communicator& comm, int root = 0) {
  return detail::start_collective({.kind = CollectiveKind::reduce, .root = root}, x, comm);
}
inline Request ibcast(const Tensor& x, const Communicator& comm, int root = 0) {
  return detail::start_collective({.kind = CollectiveKind::bcast, .root = root}, x, comm);
}
// y_root = all blocks, nothing elsewhere;  its adjoint is iscatter, and the other way round
inline Request igather(const Tensor& x, const Communicator& comm, int root, const Rows& rows) {
  return detail::start_collective({.kind = CollectiveKind::gather, .root = root, .rows = rows}, x, comm);
}
inline Request iscatter(const Tensor& x, const Communicator& comm, int root, const Rows& rows) {
  return detail::start_collective({.kind = CollectiveKind::scatter, .root = root, .rows = rows}, x, comm);
}
// y_r = all blocks;  its adjoint is ireduce_scatter, and the other way round
inline Request iallgather(const Tensor& x, const Communicator& comm, const Rows& rows) {
  return detail::start_collective({.kind = CollectiveKind::allgather, .rows = rows}, x, comm);
}
inline Request ireduce_scatter(const Tensor& x, const Communicator& comm, const Rows& rows) {
  return detail::start_collective({.kind = CollectiveKind::reduce_scatter, .rows = rows}, x, comm);
}
// y_r = block r of every rank's x;  the transpose swaps what is sent and received
inline Request ialltoall(const Tensor& x, const Communicator& comm, const Rows& send_rows, const Rows& receive_rows) {
  return detail::start_collective({.kind = CollectiveKind::alltoall, .rows = send_rows, .receive_rows = receive_rows}, x, comm);
}
// As neighbor_alltoall (comm/collectives/neighbor.h); the transpose runs on the transposed graph.
Request ineighbor_alltoall(const Tensor& x, const Topology& topology, const Rows& send_rows, const Rows& receive_rows);

}  // namespace mpigrad
