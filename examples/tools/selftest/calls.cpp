// Values and adjoints of the calls between ranks. Blocks differ in size over ranks, and the last rank is the root.

#include <numeric>

#include "comm/check/adjoint_check.h"
#include "comm/collectives/alltoallw.h"
#include "comm/collectives/neighbor.h"
#include "comm/collectives/reductions.h"
#include "comm/collectives/ring.h"
#include "comm/collectives/scan.h"
#include "comm/distributed/invariant.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/one_sided.h"
#include "comm/messages/point_to_point.h"
#include "examples/tools/selftest/selftest.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

namespace mpigrad::selftest {
namespace {

// Numbers of one rank.
Tensor of_rank(int rank, const Shape& shape, std::uint64_t key) {
  return random_normal(shape, {.key = key, .stream = 1 + static_cast<std::uint64_t>(rank)}, 0, 1, DType::float64);
}
Tensor own(const Communicator& comm, const Shape& shape, std::uint64_t key) { return of_rank(comm.rank(), shape, key); }

int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

// Rows of each rank's block: 1, 2, 3, 1, ...
Rows block_rows(int ranks) {
  Rows rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(1 + r % 3);
  return rows;
}

void require_equal(const std::string& what, const Tensor& found, const Tensor& expected) {
  const double difference = largest_difference(found, expected);
  require(difference < 1e-12, "[selftest] {} is off by {:.2e}", what, difference);
}

void compare_values(const Communicator& world) {
  const int p = world.size(), rank = world.rank(), root = p - 1;
  const Rows rows = block_rows(p);
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  std::int64_t begin = 0;  // of this rank's rows among all
  for (int r = 0; r < rank; ++r) begin += rows[static_cast<std::size_t>(r)];
  const auto mine = rows[static_cast<std::size_t>(rank)];
  // All ranks' numbers, as each rank makes them.
  Tensor total = zeros({2, 3}, DType::float64), before = total, parts = zeros({mine, 2}, DType::float64), largest;
  std::vector<Tensor> blocks, exchanged;
  for (int r = 0; r < p; ++r) {
    const Tensor x = of_rank(r, {2, 3}, 1), long_x = slice(of_rank(r, {all, 2}, 3), 0, begin, begin + mine);
    if (r < rank) before = before + x;
    total = total + x;
    largest = largest ? maximum(largest, x) : x;
    parts = parts + long_x;
    exchanged.push_back(long_x);
    blocks.push_back(of_rank(r, {rows[static_cast<std::size_t>(r)], 2}, 2));
  }
  const Tensor x = own(world, {2, 3}, 1), long_x = own(world, {all, 2}, 3), block = own(world, {mine, 2}, 2);
  require_equal("allreduce", allreduce(x, world), total);
  require_equal("the maximum over ranks", allreduce(x, world, ReduceOp::max), largest);
  if (rank == root) require_equal("reduce", reduce(x, world, root), total);
  else reduce(x, world, root);
  require_equal("bcast", bcast(x, world, root), of_rank(root, {2, 3}, 1));
  require_equal("allgather", allgather(block, world, rows), concatenate(blocks, 0));
  require_equal("reduce_scatter", reduce_scatter(long_x, world, rows), parts);
  require_equal("alltoall", alltoall(long_x, world, rows, Rows(static_cast<std::size_t>(p), mine)), concatenate(exchanged, 0));
  require_equal("exscan", exscan(x, world), before);
  require_equal("a message", shift(x, world), of_rank(previous(world), {2, 3}, 1));
}

}  // namespace

std::vector<Item> value_items(const Communicator& world) {
  return {{"values of calls", [=] { compare_values(world); }}};
}

std::vector<Item> call_items(const Communicator& world) {
  const auto p = static_cast<std::size_t>(world.size());
  const int root = world.size() - 1;
  const Rows rows = block_rows(world.size());
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const std::int64_t mine = rows[static_cast<std::size_t>(world.rank())];
  const Tensor same_shape = own(world, {2, 3}, 1), block = own(world, {mine, 2}, 2), blocks = own(world, {all, 2}, 3);
  const Tensor at_root = own(world, {world.rank() == root ? all : 0, 2}, 4);

  std::vector<Item> items;
  const auto add = [&](const std::string& name, const TensorFunction& f, const Tensors& x, const AdjointOptions& options = {}) {
    items.push_back({"adjoint: " + name, [=] { require_adjoint(name, f, x, world, options); }});
  };
  using In = const Tensors&;
  add("allreduce", [=](In x) { return Tensors{allreduce(x[0], world)}; }, {same_shape});
  add("reduce, bcast", [=](In x) { return Tensors{reduce(x[0], world, root), bcast(x[0], world, root)}; }, {same_shape});
  add("gather, scatter",
      [=](In x) {
        return Tensors{gather(x[0], world, root, rows), scatter(x[1], world, root, rows)};
      },
      {block, at_root});
  add("allgather", [=](In x) { return Tensors{allgather(x[0], world, rows)}; }, {block});
  add("reduce_scatter", [=](In x) { return Tensors{reduce_scatter(x[0], world, rows)}; }, {blocks});
  const Rows to_me(p, mine);
  add("alltoall", [=](In x) { return Tensors{alltoall(x[0], world, rows, to_me)}; }, {blocks});
  add("alltoallw", [=](In x) { return Tensors(alltoallw(std::vector<Tensor>(p, x[0]), world)); }, {block});
  // Off the ties of maxima: every rank has other numbers.
  for (const auto op : {ReduceOp::max, ReduceOp::min, ReduceOp::prod, ReduceOp::avg})
    add(fmt::format("{} over ranks", name_of(op)),
        [=](In x) {
          return Tensors{allreduce(x[0], world, op), reduce_scatter(x[1], world, rows, op)};
        },
        {same_shape, blocks}, {.linear = op == ReduceOp::avg ? std::optional(true) : std::optional(false)});
  add("maxloc, minloc",
      [=](In x) {
        return Tensors{allreduce_maxloc(x[0], world).value, allreduce_minloc(x[0], world).value};
      },
      {same_shape}, {.linear = false});
  add("scan, exscan", [=](In x) { return Tensors{scan(x[0], world), exscan(x[0], world)}; }, {same_shape});
  add("affine_scan", [=](In x) { return Tensors{affine_scan(x[0], x[1], world) + x[0] * x[1]}; },
      {same_shape, own(world, {2, 3}, 5)}, {.linear = false});
  const auto ring = cartesian(world, {world.size()}, {true});
  add("neighbours of a periodic grid",
      [=](In x) {
        return Tensors{neighbor_alltoall(x[0], ring, {1, 1}, Rows{1, 1}), neighbor_allgather(x[0], ring)};
      },
      {same_shape});
  const int to = next(world), from = previous(world);
  add("messages",
      [=](In x) {
        auto arriving = irecv(x[0].type(), world, from, 1);
        auto sent = isend(x[0], world, to, 1);
        const auto y = wait(arriving);
        wait(sent);
        return Tensors{y, shift(x[0], world), sendrecv_replace(x[0], world, from, to)};
      },
      {same_shape});
  add("calls that do not block",
      [=](In x) {
        auto sums = iallreduce(x[0], world);
        auto parts = ireduce_scatter(x[1], world, rows);
        auto gathered = iallgather(x[2], world, rows);
        // Odd ranks wait in another order.
        if (world.rank() % 2 == 0) return Tensors{wait(sums), wait(parts), wait(gathered)};
        const auto c = wait(gathered), b = wait(parts);
        return Tensors{wait(sums), b, c};
      },
      {same_shape, blocks, block});
  const auto access = rows_of(to, 0, 1);
  add("one-sided calls",
      [=](In x) {
        return Tensors{get(x[0], world, access), accumulate(x[0], x[1], world, access), put(x[0], x[1], world, access)};
      },
      {same_shape, own(world, {1, 3}, 6)});
  const Tensor replicated = random_normal({2, 3}, {.key = 7}, 0, 1, DType::float64);
  add("replicated values",
      [=](In x) {
        return Tensors{2 * replicate(x[0], world), allreduce_invariant(x[1], world)};
      },
      {replicated, same_shape}, {.inputs = {Across::same, Across::varying}, .outputs = {Across::varying, Across::same}});
  return items;
}

}  // namespace mpigrad::selftest
