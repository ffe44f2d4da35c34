#include "comm/collectives/neighbor.h"

#include <algorithm>
#include <numeric>

#include "ops/views/views.h"

namespace mpigrad {
namespace {

// The messages of one side in the order in which both ends of an edge post them: by peer and label.
std::vector<Message> messages(const std::vector<Edge>& edges, const Rows& rows, const Tensor& x, int tag) {
  struct Labelled {
    int label;
    Message message;
  };
  std::vector<Labelled> all;
  const auto per_row = x.shape().elements(1, x.rank());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto count = rows[i] * per_row;
    std::byte* data = x.raw() ? x.raw() + offset * size_of(x.dtype()) : nullptr;
    if (edges[i].peer != proc_null) all.push_back({edges[i].label, {edges[i].peer, tag, data, count}});
    offset += count;
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.label < b.label; });
  std::vector<Message> result;
  for (const auto& entry : all) result.push_back(entry.message);
  return result;
}

void require_counts(std::string_view what, const std::vector<Edge>& edges, const Rows& rows) {
  require(rows.size() == edges.size(), "[neighbor_alltoall] {} numbers of rows for {} {}", rows.size(), edges.size(), what);
  for (const auto n : rows) require(n >= 0, "[neighbor_alltoall] a block has {} rows", n);
}

std::int64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }

Rows ask(const Topology& topology, const Rows& send_rows) {
  require(topology.comm.transport().can_ask(), "[neighbor_alltoall] the dry transport cannot ask the others: name receive_rows");
  const auto n = static_cast<std::int64_t>(send_rows.size());
  Tensor mine(TensorType{Shape{n}, DType::int64}, DeviceKind::cpu);
  std::copy(send_rows.begin(), send_rows.end(), mine.mutable_data<std::int64_t>());
  const Rows one_each(send_rows.size(), 1), one_from(topology.sources.size(), 1);
  const auto theirs = mpigrad::apply(ops::NeighborAllToAll{topology, one_each, one_from}, {mine});
  const auto* data = theirs.data<std::int64_t>();
  Rows rows(data, data + theirs.elements());
  const auto& destinations = topology.destinations;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (topology.sources[i].peer == proc_null)
      rows[i] = i < destinations.size() && destinations[i].peer == proc_null ? send_rows[i] : 0;
  return rows;
}

}  // namespace

namespace ops {

Types NeighborAllToAll::infer(Inputs in) const {
  require(in[0].rank() >= 1, "[neighbor_alltoall] blocks lie along dimension 0, but this is a scalar: {}", in[0]);
  require_counts("destinations", topology.destinations, send_rows);
  require_counts("sources", topology.sources, receive_rows);
  require(in[0].dim(0) == sum_of(send_rows), "[neighbor_alltoall] the blocks to send have {} rows in all: {}", sum_of(send_rows),
          in[0]);
  auto type = in[0].type();
  type.shape[0] = sum_of(receive_rows);
  return {type};
}

Pending NeighborAllToAll::start(const Tensor& x, const Tensor& y) const {
  const auto& comm = topology.comm;
  const bool open =
      std::any_of(topology.sources.begin(), topology.sources.end(), [](const Edge& e) { return e.peer == proc_null; });
  if (open) detail::zero_bytes(y.device(), y.raw(), y.bytes());
  if (!comm.moves(x)) return {};
  const int tag = comm.side().max_tag();
  return comm.side(x.device())
      .start_round(messages(topology.destinations, send_rows, x, tag), messages(topology.sources, receive_rows, y, tag),
                   x.dtype());
}

}  // namespace ops

Topology graph(const Communicator& comm, const std::vector<int>& destinations) {
  const auto size = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> sent(size), received(size);
  Topology topology{comm, {}, {}};
  for (const int peer : destinations) {
    require(peer >= 0 && peer < comm.size(), "[graph] destination {} is not one of {} ranks", peer, comm.size());
    topology.destinations.push_back({peer, static_cast<int>(sent[static_cast<std::size_t>(peer)]++)});
  }
  const std::vector<std::int64_t> one(size, 1);
  comm.transport().alltoall(sent.data(), one, received.data(), one, DType::int64);
  for (std::size_t r = 0; r < size; ++r)
    for (int label = 0; label < received[r]; ++label) topology.sources.push_back({static_cast<int>(r), label});
  return topology;
}

Topology cartesian(const Communicator& comm, const std::vector<int>& extents, const std::vector<bool>& periodic) {
  require(extents.size() == periodic.size(), "[cartesian] {} extents, {} periodic flags", extents.size(), periodic.size());
  std::int64_t ranks = 1;
  for (const int extent : extents) {
    require(extent >= 1, "[cartesian] an extent is at least 1, got {}", extent);
    ranks *= extent;
  }
  require(ranks == comm.size(), "[cartesian] a grid of {} ranks on a communicator of {}", ranks, comm.size());
  Topology topology{comm, {}, {}};
  int stride = comm.size();
  for (std::size_t d = 0; d < extents.size(); ++d) {
    stride /= extents[d];
    const int at = comm.rank() / stride % extents[d];
    const auto neighbour = [&](int step) {
      const int there = at + step;
      if (!periodic[d] && (there < 0 || there >= extents[d])) return proc_null;
      return comm.rank() + ((there + extents[d]) % extents[d] - at) * stride;
    };
    const int down = static_cast<int>(2 * d), up = down + 1;  // labels: the direction in which the block travels
    topology.destinations.push_back({neighbour(-1), down});
    topology.destinations.push_back({neighbour(1), up});
    topology.sources.push_back({neighbour(-1), up});
    topology.sources.push_back({neighbour(1), down});
  }
  return topology;
}

Tensor neighbor_alltoall(const Tensor& x, const Topology& topology, Rows send_rows, std::optional<Rows> receive_rows) {
  require_counts("destinations", topology.destinations, send_rows);
  // A rank without sources must take part, too, to tell its destinations.
  if (!receive_rows) receive_rows = ask(topology, send_rows);
  return mpigrad::apply(ops::NeighborAllToAll{topology, std::move(send_rows), std::move(*receive_rows)}, {x});
}

Tensor neighbor_allgather(const Tensor& x, const Topology& topology, std::optional<Rows> receive_rows) {
  require(x.rank() >= 1, "[neighbor_allgather] blocks lie along dimension 0, but this is a scalar: {}", x);
  const std::vector<Tensor> copies(topology.destinations.size(), x);
  const auto sent = copies.empty() ? slice(x, 0, 0, 0) : concatenate(copies, 0);
  Rows send_rows(copies.size(), x.dim(0));
  if (!receive_rows) {
    receive_rows = ask(topology, send_rows);
    for (std::size_t i = 0; i < topology.sources.size(); ++i)
      if (topology.sources[i].peer == proc_null) (*receive_rows)[i] = x.dim(0);
  }
  return neighbor_alltoall(sent, topology, std::move(send_rows), std::move(receive_rows));
}

}  // namespace mpigrad
