#include "comm/collectives/collectives.h"

#include <numeric>

#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

Shape with_rows(const Shape& shape, std::int64_t rows) {
  Shape result = shape;
  result[0] = rows;
  return result;
}

void require_rows(std::string_view op, const Tensor& x, const Communicator& comm, const Rows& rows) {
  require(x.rank() >= 1, "[{}] blocks lie along dimension 0, but this is a scalar: {}", op, x);
  require(static_cast<int>(rows.size()) == comm.size(), "[{}] {} numbers of rows for {} ranks", op, rows.size(), comm.size());
  for (const auto n : rows) require(n >= 0, "[{}] a block has {} rows", op, n);
}

void require_root(std::string_view op, const Communicator& comm, int root) {
  require(root >= 0 && root < comm.size(), "[{}] root {} is not one of {} ranks", op, root, comm.size());
}

std::int64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }

void clear(Tensor& y) { detail::zero_bytes(y.device(), y.raw(), y.bytes()); }

}  // namespace

void AllReduce::run(Inputs in, Outputs out) const {
  if (comm.moves(in[0]))
    comm.transport(in[0].device()).allreduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), CombineOp::sum);
}

void ReduceToRoot::run(Inputs in, Outputs out) const {
  if (comm.rank() != root) clear(out[0]);
  if (comm.moves(in[0]))
    comm.transport(in[0].device()).reduce(in[0].raw(), out[0].raw(), in[0].elements(), in[0].dtype(), CombineOp::sum, root);
}

void Bcast::run(Inputs in, Outputs out) const {
  if (!comm.moves(in[0])) return;
  if (comm.rank() == root) detail::copy_bytes(in[0].device(), out[0].raw(), in[0].raw(), in[0].bytes());
  comm.transport(out[0].device()).bcast(out[0].raw(), out[0].elements(), out[0].dtype(), root);
}

}  // namespace ops

namespace detail {

TensorType result_type(const BlockCall& call, const Tensor& x, const Communicator& comm) {
  const auto name = name_of(call.kind);
  const auto blocks = block_traits_of(call.kind);
  const bool rooted = traits_of(call.kind).rooted();
  if (blocks.in == BlockRows::alike) return x.type();
  ops::require_rows(name, x, comm, call.rows);
  if (blocks.out == BlockRows::received) ops::require_rows(name, x, comm, call.receive_rows);
  if (rooted) ops::require_root(name, comm, call.root);
  const auto rows_on_this_rank = [&](BlockRows rows) -> std::int64_t {
    switch (rows) {
      case BlockRows::none: return 0;
      case BlockRows::alike: return x.dim(0);
      case BlockRows::own: return call.rows[static_cast<std::size_t>(comm.rank())];
      case BlockRows::all: return rooted && comm.rank() != call.root ? 0 : ops::sum_of(call.rows);
      case BlockRows::sent: return ops::sum_of(call.rows);
      case BlockRows::received: return ops::sum_of(call.receive_rows);
    }
    return 0;
  };
  const auto rows = rows_on_this_rank(blocks.in);
  if (x.dim(0) != rows) {
    if (blocks.in == BlockRows::own) fail("[{}] {} rows were announced: {}", name, rows, x);
    if (rooted) fail("[{}] rank {} contributes {} rows, root is {}: {}", name, comm.rank(), rows, call.root, x);
    fail("[{}] the blocks{} have {} rows in all: {}", name, blocks.in == BlockRows::sent ? " to send" : "", rows, x);
  }
  return {ops::with_rows(x.shape(), rows_on_this_rank(blocks.out)), x.dtype()};
}

void with_arguments(const BlockCall& call, const Tensor& x, const Tensor& y, const std::function<void(const Collective&)>& f) {
  const auto per_row = x.rank() ? x.shape().elements(1, x.rank()) : 1;
  Rows counts = call.rows, receive_counts = call.receive_rows;
  for (auto* list : {&counts, &receive_counts})
    for (auto& n : *list) n *= per_row;
  f({.kind = call.kind,
     .in = x.raw(),
     .out = y.raw(),
     .type = x.dtype(),
     .op = call.op,
     .root = call.root,
     .count = counts.empty() ? x.elements() : 0,
     .counts = counts,
     .receive_counts = receive_counts});
}

void run(const BlockCall& call, const Tensor& x, const Tensor& y, const Communicator& comm) {
  if (!comm.moves(x)) return;
  with_arguments(call, x, y, [&](const Collective& arguments) { comm.transport(x.device()).run(arguments); });
}

}  // namespace detail

namespace {

std::int64_t extent_along(std::string_view call, const Tensor& x, int axis) {
  require(x.rank() >= 1, "[{}] a scalar has no rows: {}", call, x);
  const int dimension = axis < 0 ? axis + x.rank() : axis;
  require(dimension >= 0 && dimension < x.rank(), "[{}] there is no dimension {}: {}", call, axis, x);
  return x.dim(dimension);
}

// The block dimension; 0 for a scalar, too, which the ops refuse.
int block_dimension(const Tensor& x, int axis) {
  const int dimension = axis < 0 ? axis + x.rank() : axis;
  require(dimension == 0 || (dimension > 0 && dimension < x.rank()),
          "[collective] blocks along dimension {}, which does not exist: {}", axis, x);
  return dimension;
}

Rows balanced_rows(std::int64_t extent, int ranks) {
  const auto cuts = balanced_cuts(extent, ranks);
  Rows rows;
  for (std::size_t r = 1; r < cuts.size(); ++r) rows.push_back(cuts[r] - cuts[r - 1]);
  return rows;
}

// Blocks along a dimension that is not the first travel one after the other, each as it lies in memory. Converting between these
// and the tensor moves contiguous runs of memory, where permuting would move elements.
struct InnerBlocks {
  std::int64_t before, behind;  // products of the extents before and after the dimension
  Rows rows, counts;            // counts: elements of each block
  bool even;

  InnerBlocks(const Shape& shape, int dimension, Rows rows_of_blocks)
      : before(shape.elements(0, dimension)), behind(shape.elements(dimension + 1, shape.rank())),
        rows(std::move(rows_of_blocks)), counts(rows), even(std::equal(rows.begin() + 1, rows.end(), rows.begin())) {
    for (auto& count : counts) count *= before * behind;
  }

  // [elements of all blocks] -> [before, rows, behind], as a tensor of another shape; packed() is the inverse.
  Tensor unpacked(const Tensor& all) const {
    const auto ranks = static_cast<std::int64_t>(rows.size());
    if (before == 1) return all;
    if (even) return permute(reshape(all, {ranks, before, rows[0] * behind}), {1, 0, 2});
    Tensors parts;
    std::int64_t at = 0;
    for (std::size_t r = 0; r < rows.size(); at += counts[r++])
      parts.push_back(reshape(slice(all, 0, at, at + counts[r]), {before, rows[r] * behind}));
    return concatenate(parts, 1);
  }
  Tensor packed(const Tensor& x) const {
    const auto ranks = static_cast<std::int64_t>(rows.size());
    const Shape flat{x.elements()};
    if (before == 1) return reshape(x, flat);
    if (even) return reshape(permute(reshape(x, {before, ranks, rows[0] * behind}), {1, 0, 2}), flat);
    const auto lines = reshape(x, {before, ops::sum_of(rows) * behind});
    Tensors parts;
    std::int64_t at = 0;
    for (std::size_t r = 0; r < rows.size(); at += rows[r++] * behind)
      parts.push_back(reshape(slice(lines, 1, at, at + rows[r] * behind), {counts[r]}));
    return concatenate(parts, 0);
  }
};

Shape with_extent(Shape shape, int dimension, std::int64_t extent) {
  shape[dimension] = extent;
  return shape;
}

}  // namespace

Rows rows_of_all(const Tensor& x, const Communicator& comm, int axis) {
  const std::int64_t mine = extent_along("rows", x, axis);
  Rows rows(static_cast<std::size_t>(comm.size()), mine);
  const Rows one(rows.size(), 1);
  if (comm.transport().can_ask()) comm.transport().allgather(&mine, rows.data(), one, DType::int64);
  return rows;
}

Tensor along_axis(const Tensor& x, int axis, const std::function<Tensor(const Tensor&)>& f) {
  const int dimension = block_dimension(x, axis);
  if (dimension == 0) return f(x);
  std::vector<int> there{dimension}, back;
  for (int d = 0; d < x.rank(); ++d)
    if (d != dimension) there.push_back(d);
  for (int d = 0; d < x.rank(); ++d) back.push_back(d < dimension ? d + 1 : d == dimension ? 0 : d);
  return permute(f(permute(x, there)), back);
}

Tensor allreduce(const Tensor& x, const Communicator& comm) { return mpigrad::apply(ops::AllReduce{comm}, {x}); }
Tensor reduce(const Tensor& x, const Communicator& comm, int root) {
  ops::require_root("reduce", comm, root);
  return mpigrad::apply(ops::ReduceToRoot{comm, root}, {x});
}
Tensor bcast(const Tensor& x, const Communicator& comm, int root) {
  ops::require_root("bcast", comm, root);
  return mpigrad::apply(ops::Bcast{comm, root}, {x});
}
Tensor gather(const Tensor& x, const Communicator& comm, int root, Rows rows, int axis) {
  if (rows.empty()) rows = rows_of_all(x, comm, axis);
  return along_axis(x, axis, [&](const Tensor& front) { return mpigrad::apply(ops::Gather{comm, root, rows}, {front}); });
}
Tensor scatter(const Tensor& x, const Communicator& comm, int root, Rows rows, int axis) {
  ops::require_root("scatter", comm, root);
  if (rows.empty()) {
    require(comm.transport().can_ask(), "[scatter] the dry transport cannot ask the root for its rows; name them: {}", x);
    auto extent = extent_along("scatter", x, axis);
    comm.transport().bcast(&extent, 1, DType::int64, root);
    rows = balanced_rows(extent, comm.size());
  }
  return along_axis(x, axis, [&](const Tensor& front) { return mpigrad::apply(ops::Scatter{comm, root, rows}, {front}); });
}
Tensor allgather(const Tensor& x, const Communicator& comm, Rows rows, int axis) {
  if (rows.empty()) rows = rows_of_all(x, comm, axis);
  const int dimension = block_dimension(x, axis);
  if (dimension == 0 || x.layout()) return mpigrad::apply(ops::AllGather{comm, rows}, {x});
  ops::require_rows("allgather", x, comm, rows);
  require(x.dim(dimension) == rows[static_cast<std::size_t>(comm.rank())], "[allgather] {} rows were announced: {}",
          rows[static_cast<std::size_t>(comm.rank())], x);
  const InnerBlocks blocks(x.shape(), dimension, rows);
  const auto all = mpigrad::apply(ops::AllGather{comm, blocks.counts}, {reshape(x, Shape{x.elements()})});
  return reshape(blocks.unpacked(all), with_extent(x.shape(), dimension, ops::sum_of(rows)));
}
Tensor reduce_scatter(const Tensor& x, const Communicator& comm, Rows rows, int axis) {
  if (rows.empty()) rows = balanced_rows(extent_along("reduce_scatter", x, axis), comm.size());
  const int dimension = block_dimension(x, axis);
  if (dimension == 0 || x.layout()) return mpigrad::apply(ops::ReduceScatter{comm, rows}, {x});
  ops::require_rows("reduce_scatter", x, comm, rows);
  require(x.dim(dimension) == ops::sum_of(rows), "[reduce_scatter] the blocks have {} rows in all: {}", ops::sum_of(rows), x);
  const InnerBlocks blocks(x.shape(), dimension, rows);
  const auto mine = mpigrad::apply(ops::ReduceScatter{comm, blocks.counts}, {blocks.packed(x)});
  return reshape(mine, with_extent(x.shape(), dimension, rows[static_cast<std::size_t>(comm.rank())]));
}
Tensor alltoall(const Tensor& x, const Communicator& comm, Rows send_rows, Rows receive_rows, int axis) {
  ops::require_rows("alltoall", x, comm, send_rows);
  if (receive_rows.empty()) {
    require(comm.transport().can_ask(),
            "[alltoall] the dry transport cannot ask the others for their rows; name receive_rows: {}", x);
    receive_rows.resize(send_rows.size());
    const Rows one(send_rows.size(), 1);
    comm.transport().alltoall(send_rows.data(), one, receive_rows.data(), one, DType::int64);
  }
  return along_axis(x, axis, [&](const Tensor& front) {
    return mpigrad::apply(ops::AllToAll{comm, send_rows, receive_rows}, {front});
  });
}

void barrier(const Communicator& comm) {
  comm.transport().barrier();
  if (Tape::recording())
    Tape::record({.name = "barrier",
                  .communicates = true,
                  .keeps_inputs = 0,
                  .keeps_outputs = 0,
                  .inputs = {},
                  .outputs = {},
                  .vjp = [comm](const Replay&, Inputs) {
                    barrier(comm);
                    return Tensors();
                  }});
}

}  // namespace mpigrad
