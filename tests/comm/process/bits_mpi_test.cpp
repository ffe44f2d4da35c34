// Prints a hash of the results and gradients of each operation between ranks, over all ranks: two launches of the same number of
// ranks print the same lines if their results have the same bits. tests/comm/process/two_nodes.sh compares them.

#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/collectives/neighbor.h"
#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"
#include "comm/messages/nonblocking.h"
#include "framework/engine/tape.h"
#include "framework/tensor/content_hash.h"
#include "models/train/session.h"
#include "ops/random/random.h"

using namespace mpigrad;

namespace {

std::uint64_t hash_of(const Tensor& x) { return content_hash(x.dtype(), x.raw(), x.elements()); }

// x: this rank's random values. The cotangents are random, too.
void print_hash(const Communicator& comm, const std::string& name, const Tensor& x,
                const std::function<Tensor(const Tensor&)>& f) {
  Tape tape;
  const Tensor y = f(x);
  const Tensor u = random_normal(y.shape(), {.key = 50 + static_cast<std::uint64_t>(comm.rank())}, 0, 1, y.dtype());
  const Tensor gradient = tape.vjp({y}, {u}, {x})[0];
  const std::vector<std::uint64_t> mine{hash_of(y), hash_of(gradient)};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(comm.size()));
  comm.transport().allgather(mine.data(), all.data(), std::vector<std::int64_t>(static_cast<std::size_t>(comm.size()), 2),
                             DType::int64);
  if (comm.rank() == 0)
    std::printf("%s %016llx\n", name.c_str(),
                static_cast<unsigned long long>(content_hash(DType::int64, all.data(), static_cast<std::int64_t>(all.size()))));
}

void print_all(const Communicator& comm, DType type, std::int64_t width) {
  const std::int64_t p = comm.size(), r = comm.rank();
  // Uneven blocks: rank q has 1 + q mod 3 rows.
  Rows rows;
  for (std::int64_t q = 0; q < p; ++q) rows.push_back(1 + q % 3);
  const auto total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const auto values = [&](std::int64_t count, std::uint64_t key) {
    return random_normal({count, width}, {.key = 100 * key + static_cast<std::uint64_t>(r)}, 0, 1, type);
  };
  const auto own = values(rows[static_cast<std::size_t>(r)], 1), same = values(3, 2), all = values(total, 3);
  const auto show = [&](const std::string& name, const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
    print_hash(comm, fmt::format("{} of {} x {}", name, name_of(type), width), x, f);
  };
  const int last = comm.size() - 1;
  for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::prod}) {
    show(fmt::format("allreduce {}", static_cast<int>(op)), same, [&](const Tensor& x) { return allreduce(x, comm, op); });
    show(fmt::format("scan {}", static_cast<int>(op)), same, [&](const Tensor& x) { return scan(x, comm, op); });
  }
  show("iallreduce", same, [&](const Tensor& x) { return wait(iallreduce(x, comm)); });
  show("reduce", same, [&](const Tensor& x) { return reduce(x, comm, last); });
  show("reduce_scatter", all, [&](const Tensor& x) { return reduce_scatter(x, comm, rows); });
  show("bcast", same, [&](const Tensor& x) { return bcast(x, comm, last); });
  show("gather", own, [&](const Tensor& x) { return gather(x, comm, last, rows); });
  show("scatter", r == last ? all : values(0, 3), [&](const Tensor& x) { return scatter(x, comm, last, rows); });
  show("allgather", own, [&](const Tensor& x) { return allgather(x, comm, rows); });
  const Rows to(static_cast<std::size_t>(p), 2);
  show("alltoall", values(2 * p, 4), [&](const Tensor& x) { return alltoall(x, comm, to, to); });
  const auto ring = cartesian(comm, {comm.size()}, {true});
  show("neighbours", same, [&](const Tensor& x) { return neighbor_allgather(x, ring); });
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    for (const auto type : {DType::float32, DType::float64})
      for (const std::int64_t width : {1, 1000, 20000}) print_all(session.world(), type, width);
  });
}
