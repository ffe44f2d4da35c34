#ifndef MPIGRAD_COMM_COLLECTIVES_COLLECTIVES_H
#define MPIGRAD_COMM_COLLECTIVES_COLLECTIVES_H
// MPI's collective operations as differentiable ops. Stack the tensors of all ranks into one vector: each call of this header is
// a linear map of it, and its vjp is the transpose. Maximum, product and other reductions are in reductions.h. Nothing is divided
// by the number of ranks. S is the sum over ranks.
//
// Blocks lie along dimension `axis`, by default the first (negative ones count from the end); `rows` lists the extent of every
// rank's block there (MPI's counts, in rows). The extents may differ and may be 0. Where `rows` is left out, gathering calls
// exchange the extents first, and scattering calls cut balanced blocks, the first ranks' blocks being one row larger. Integers
// and booleans are moved too and carry no derivative.

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad {

using Rows = std::vector<std::int64_t>;

// The rows of a rank's tensor in a collective.
enum class BlockRows : std::uint8_t {
  none,     // there is no tensor
  alike,    // as many as on every other rank: nothing is cut
  own,      // those of its block
  all,      // the rows of all blocks together; in a rooted collective only at the root, elsewhere 0
  sent,     // those of the blocks that it sends
  received  // those of the blocks that it receives
};
// How a kind of collective treats blocks.
struct BlockTraits {
  CollectiveKind transpose = CollectiveKind::barrier;  // the transpose of the collective; if the collective reduces, then by sum
  BlockRows in = BlockRows::none, out = BlockRows::none;
  bool in_place = false;  // input and result share one buffer
};
constexpr BlockTraits block_traits_of(CollectiveKind kind) {
  constexpr auto alike = BlockRows::alike, own = BlockRows::own, all = BlockRows::all;
  switch (kind) {
    case CollectiveKind::barrier: return {};
    case CollectiveKind::bcast: return {.transpose = CollectiveKind::reduce, .in = alike, .out = alike, .in_place = true};
    case CollectiveKind::reduce: return {.transpose = CollectiveKind::bcast, .in = alike, .out = alike};
    case CollectiveKind::allreduce: return {.transpose = CollectiveKind::allreduce, .in = alike, .out = alike};
    case CollectiveKind::gather: return {.transpose = CollectiveKind::scatter, .in = own, .out = all};
    case CollectiveKind::scatter: return {.transpose = CollectiveKind::gather, .in = all, .out = own};
    case CollectiveKind::allgather: return {.transpose = CollectiveKind::reduce_scatter, .in = own, .out = all};
    case CollectiveKind::reduce_scatter: return {.transpose = CollectiveKind::allgather, .in = all, .out = own};
    case CollectiveKind::alltoall:
      return {.transpose = CollectiveKind::alltoall, .in = BlockRows::sent, .out = BlockRows::received};
  }
  return {};
}

namespace detail {

// A collective and its attributes. `rows`: the rows of each rank's block; for alltoall the rows sent, and `receive_rows`
// received.
struct BlockCall {
  CollectiveKind kind = CollectiveKind::allreduce;
  CombineOp op = CombineOp::sum;
  int root = -1;
  Rows rows = {}, receive_rows = {};
};
// The type of the result on this rank. An Error with the kind's name if x, the root or the rows do not fit.
TensorType result_type(const BlockCall& call, const Tensor& x, const Communicator& comm);
// Calls f with the arguments for a Transport, which are valid until f returns.
void with_arguments(const BlockCall& call, const Tensor& x, const Tensor& y, const std::function<void(const Collective&)>& f);
// Writes the collective of x to y, if the transport moves data.
void run(const BlockCall& call, const Tensor& x, const Tensor& y, const Communicator& comm);

}  // namespace detail

// y_r = S x;  xbar_r = S ybar
Tensor allreduce(const Tensor& x, const Communicator& comm);
// y_root = S x, zeros elsewhere;  xbar_r = ybar_root
Tensor reduce(const Tensor& x, const Communicator& comm, int root = 0);
// y_r = x_root;  xbar_root = S ybar, zeros elsewhere
Tensor bcast(const Tensor& x, const Communicator& comm, int root = 0);
// y_root = blocks one after the other, nothing ([0, ...]) elsewhere;  xbar_r = block r of ybar_root
Tensor gather(const Tensor& x, const Communicator& comm, int root = 0, Rows rows = {}, int axis = 0);
// y_r = block r of x_root; elsewhere x is [0, ...];  xbar_root = all ybar one after the other
Tensor scatter(const Tensor& x, const Communicator& comm, int root = 0, Rows rows = {}, int axis = 0);
// y_r = all blocks;  xbar_r = block r of S ybar
Tensor allgather(const Tensor& x, const Communicator& comm, Rows rows = {}, int axis = 0);
// y_r = block r of S x;  xbar_r = all ybar
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, Rows rows = {}, int axis = 0);
// y_r = block r of every rank's x, in rank order;  the transpose swaps what is sent and received
Tensor alltoall(const Tensor& x, const Communicator& comm, Rows send_rows, Rows receive_rows = {}, int axis = 0);
// Recorded: the replay synchronises at the same place.
void barrier(const Communicator& comm);
// The sum over ranks of a scalar, outside the tape: for printing. A plain scalar is summed over comm; a distributed scalar only
// over its partial axes.
double total(const Tensor& share, const Communicator& comm);
// The same for distributed scalars. A plain tensor is an Error, except in a one-rank program, which gets its value.
double total(const Tensor& share);
// The same of a value that is on the host already; `layout` is that of the partial sum, or null.
double total(double share, const LayoutPtr& layout, const Communicator& comm);
// Every rank's extent of x along `axis`.
Rows rows_of_all(const Tensor& x, const Communicator& comm, int axis = 0);
// Applies f to x with dimension `axis` moved to the front, and moves that dimension of the result back.
Tensor along_axis(const Tensor& x, int axis, const std::function<Tensor(const Tensor&)>& f);

namespace ops {

// Every op here has these members; `run` of a communication op serves all devices.
struct AllReduce {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "allreduce", .communicates = true, .takes_complex = true}; }
  // Not on rank 0, because it may be the only rank that passes an objective, for all others.
  int equal_on() const { return comm.rank() == 1 ? comm.size() : 0; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {allreduce(g[0], comm)}; }
};

// Reduce and Bcast: y_root = S x; the transpose sends ybar_root to all ranks. The cotangents of the zeros elsewhere are ignored.
struct ReduceToRoot {
  Communicator comm;
  int root = 0;
  static constexpr OpTraits traits() { return {.name = "reduce", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {bcast(g[0], comm, root)}; }
};
struct Bcast {
  Communicator comm;
  int root = 0;
  static constexpr OpTraits traits() { return {.name = "bcast", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {reduce(g[0], comm, root)}; }
};

struct Gather {
  Communicator comm;
  int root = 0;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "gather", .communicates = true, .takes_complex = true}; }
  detail::BlockCall call() const { return {.kind = CollectiveKind::gather, .root = root, .rows = rows}; }
  Types infer(Inputs in) const { return {detail::result_type(call(), in[0], comm)}; }
  void run(Inputs in, Outputs out) const { detail::run(call(), in[0], out[0], comm); }
  Tensors vjp(const Replay&, Inputs g) const { return {scatter(g[0], comm, root, rows)}; }
};
struct Scatter {
  Communicator comm;
  int root = 0;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "scatter", .communicates = true, .takes_complex = true}; }
  detail::BlockCall call() const { return {.kind = CollectiveKind::scatter, .root = root, .rows = rows}; }
  Types infer(Inputs in) const { return {detail::result_type(call(), in[0], comm)}; }
  void run(Inputs in, Outputs out) const { detail::run(call(), in[0], out[0], comm); }
  Tensors vjp(const Replay&, Inputs g) const { return {gather(g[0], comm, root, rows)}; }
};

struct AllGather {
  Communicator comm;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "allgather", .communicates = true, .takes_complex = true}; }
  detail::BlockCall call() const { return {.kind = CollectiveKind::allgather, .rows = rows}; }
  Types infer(Inputs in) const { return {detail::result_type(call(), in[0], comm)}; }
  void run(Inputs in, Outputs out) const { detail::run(call(), in[0], out[0], comm); }
  Tensors vjp(const Replay&, Inputs g) const { return {reduce_scatter(g[0], comm, rows)}; }
};
struct ReduceScatter {
  Communicator comm;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "reduce_scatter", .communicates = true, .takes_complex = true}; }
  detail::BlockCall call() const { return {.kind = CollectiveKind::reduce_scatter, .rows = rows}; }
  Types infer(Inputs in) const { return {detail::result_type(call(), in[0], comm)}; }
  void run(Inputs in, Outputs out) const { detail::run(call(), in[0], out[0], comm); }
  Tensors vjp(const Replay&, Inputs g) const { return {allgather(g[0], comm, rows)}; }
};

struct AllToAll {
  Communicator comm;
  Rows send_rows, receive_rows;
  static constexpr OpTraits traits() { return {.name = "alltoall", .communicates = true, .takes_complex = true}; }
  detail::BlockCall call() const { return {.kind = CollectiveKind::alltoall, .rows = send_rows, .receive_rows = receive_rows}; }
  Types infer(Inputs in) const { return {detail::result_type(call(), in[0], comm)}; }
  void run(Inputs in, Outputs out) const { detail::run(call(), in[0], out[0], comm); }
  Tensors vjp(const Replay&, Inputs g) const { return {alltoall(g[0], comm, receive_rows, send_rows)}; }
};

}  // namespace ops
}  // namespace mpigrad

#endif
