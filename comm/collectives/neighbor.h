#pragma once
// MPI's neighbourhood collectives, on a graph or a Cartesian grid of ranks. The transpose runs on the transposed graph with sent
// and received blocks exchanged. Blocks are rows, one after the other in the order of the edges.

#include <memory>
#include <optional>
#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad {

// One end of an edge. Edges between the same two ranks are told apart by their label, which both ends know. A peer may be
// proc_null (the open end of a grid): nothing is sent, and the received block is zeros, like the receive buffers of MPI's
// MPI_PROC_NULL. A block that is sent there gets no cotangent.
struct Edge {
  int peer = 0;
  int label = 0;
};
struct Topology {
  Communicator comm;
  std::vector<Edge> sources, destinations;  // of this rank, in the order of the blocks
  Topology transposed() const { return {comm, destinations, sources}; }
};

// Each rank lists its destinations; its sources are in the order of ranks. Repeated destinations are separate edges. Collective.
Topology graph(const Communicator& comm, const std::vector<int>& destinations);
// Neighbours on a row-major grid of all ranks, in MPI's order: for each dimension the one below, then the one above. A block sent
// down arrives as the block from above, also where both neighbours are the same rank.
Topology cartesian(const Communicator& comm, const std::vector<int>& extents, const std::vector<bool>& periodic);

// rows: one number per source or destination. If receive rows are left out, the ranks exchange them; either all ranks give them
// or none, including ranks without sources. At an open end no rank can tell the number of rows. In neighbor_alltoall the received
// block then has as many rows as the block sent to the destination at the same place in the list, if that is an open end too,
// otherwise none; in neighbor_allgather it has as many as x.
// Block i of y = the block that source i sends here;  xbar = the cotangents that come back from the destinations
Tensor neighbor_alltoall(const Tensor& x, const Topology& topology, Rows send_rows, std::optional<Rows> receive_rows = {});
// Block i of y = x of source i;  xbar = the sum of what the destinations return
Tensor neighbor_allgather(const Tensor& x, const Topology& topology, std::optional<Rows> receive_rows = {});

namespace ops {

struct NeighborAllToAll {
  Topology topology;
  Rows send_rows, receive_rows;
  static constexpr OpTraits traits() { return {.name = "neighbor_alltoall", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  // Starts moving the blocks of x into y.
  Pending start(const Tensor& x, const Tensor& y) const;
  void run(Inputs in, Outputs out) const { start(in[0], out[0]).wait(); }
  Tensors vjp(const Replay&, Inputs g) const { return {neighbor_alltoall(g[0], topology.transposed(), receive_rows, send_rows)}; }
};

}  // namespace ops
}  // namespace mpigrad
