// A network laid out for every rank of a large grid on the dry transport and device: every send has its receive, the members of
// every collective agree, messages have the predicted size, nothing is allocated.

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "comm/spatial/distributed.h"
#include "comm/spatial/exchange.h"
#include "comm/spatial/window_plan.h"
#include "framework/tensor/storage.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Log = std::vector<DryRecord>;

// Forward and backward of a small network; the layout's cuts are uneven.
void run_network(const GridPtr& grid, const Shape& input) {
  auto layout = activation_layout(grid, input);
  Dice dice(4);
  layout = with_random_cuts(layout, dice);
  const auto target = split_layout(grid, {input[0], 4}, {0, -1, -1, -1});
  const auto batch = layout->axis_of(0) < 0 ? target : with_cuts(target, 0, layout->axes[0].cuts);
  const Tensor x = zeros(layout->box().extents()).with_layout(layout);
  const Tensor w1 = zeros({8, 3, 3, 3, input[4]}), b1 = zeros({8}), gamma = zeros({8}), w2 = zeros({16, 4, 4, 4, 8});
  const Tensor w3 = zeros({4, 16}), t = constant(zeros(batch->box().extents()).with_layout(batch));
  Tape tape;
  auto y = conv(x, w1, b1, {.padding_low = 1, .padding_high = 1, .activation = Activation::leaky_relu(0.1)});
  y = batch_norm(y, gamma, b1).y;
  y = max_pool(y, {.kernel = 2, .stride = 2});
  y = conv(y, w2, {}, {.stride = 2, .padding_low = 1, .padding_high = 2, .activation = Activation::leaky_relu(0.1)});
  y = avg_pool(y, {.kernel = 3, .stride = 1, .padding_low = 1, .padding_high = 1, .count_include_pad = false});
  const auto features = flatten(y);
  y = linear(flatten(global_avg_pool(y)), w3);
  const auto g = tape.gradient(mse(y, t) + mean(square(features)), {x, w1, b1, gamma, w2, w3});
  require(!y.raw() && !g[0].raw() && !g[1].raw(), "[test] the dry device has elements");
}

std::vector<Log> logs_of(const GridExtents& extents, const Shape& input) {
  const int ranks = extents.sample * extents.depth * extents.height * extents.width;
  std::vector<Log> logs;
  for (int r = 0; r < ranks; ++r) {
    auto log = std::make_shared<Log>();
    run_network(make_grid(Communicator(dry_world(r, ranks, log)), extents), input);
    logs.push_back(std::move(*log));
  }
  return logs;
}

// Messages between two ranks with one tag, in order; the calls on one set of members, in order.
void check_logs(const std::vector<Log>& logs) {
  using Channel = std::tuple<int, int, int>;  // source, destination, tag
  std::map<Channel, std::vector<std::int64_t>> sent, received;
  std::map<std::uint64_t, std::vector<std::vector<std::string>>> collectives;  // per set of members: every rank's calls
  for (std::size_t r = 0; r < logs.size(); ++r) {
    std::map<std::uint64_t, std::vector<std::string>> mine;
    for (const auto& record : logs[r]) {
      const int me = static_cast<int>(r);
      if (record.call == "send") sent[{me, record.peer, record.tag}].push_back(record.bytes);
      else if (record.call == "receive") received[{record.peer, me, record.tag}].push_back(record.bytes);
      else mine[record.members].push_back(fmt::format("{} of {} bytes, root {}", record.call, record.bytes, record.peer));
    }
    for (auto& [members, calls] : mine) collectives[members].push_back(std::move(calls));
  }
  CHECK((sent == received));
  CHECK(!collectives.empty());
  for (const auto& [members, calls] : collectives)
    for (const auto& of_rank : calls) CHECK((of_rank == calls.front()));
}

}  // namespace

TEST_CASE("dry: every send has its receive, collectives agree, nothing is allocated") {
  UseDevice device(DeviceKind::dry);
  const auto before = memory_statistics(DeviceKind::cpu);
  const auto dry_before = memory_statistics(DeviceKind::dry);
  for (const GridExtents& extents :
       {GridExtents{.sample = 2, .depth = 3, .height = 2, .width = 2}, GridExtents{.depth = 4, .height = 3, .width = 2},
        GridExtents{.depth = 24}, GridExtents{.sample = 24}})
    check_logs(logs_of(extents, {5, 21, 19, 23, 2}));
  CHECK(memory_statistics(DeviceKind::cpu).allocations == before.allocations);
  CHECK(memory_statistics(DeviceKind::dry).current_bytes == dry_before.current_bytes);
  CHECK(memory_statistics(DeviceKind::dry).peak_bytes > dry_before.current_bytes);
}

TEST_CASE("dry: more ranks than planes, and very many ranks") {
  UseDevice device(DeviceKind::dry);
  check_logs(logs_of({.depth = 6, .height = 7, .width = 6}, {1, 12, 14, 13, 1}));
}

TEST_CASE("dry: a halo's bytes are as predicted") {
  UseDevice device(DeviceKind::dry);
  for (int r = 0; r < 5; ++r) {
    auto log = std::make_shared<Log>();
    const auto grid = make_grid(Communicator(dry_world(r, 5, log)), {.depth = 5});
    const auto layout = activation_layout(grid, {2, 33, 6, 7, 4});
    const auto x = zeros(layout->box().extents()).with_layout(layout);
    conv(x, zeros({8, 5, 3, 3, 4}), {}, {.padding_low = 2, .padding_high = 2});
    // Two planes from every neighbour: [2, 2, 6, 7, 4] of float32.
    const std::int64_t plane = 2 * 6 * 7 * 4 * 4, neighbours = (r > 0) + (r < 4);
    std::int64_t sent = 0, received = 0;
    for (const auto& record : *log) (record.call == "send" ? sent : received) += record.bytes;
    CHECK(sent == 2 * plane * neighbours);
    CHECK(received == sent);
    CHECK(static_cast<std::int64_t>(log->size()) == 2 * neighbours);
  }
}

TEST_CASE("dry: of ranks that hold the same, one sends") {
  UseDevice device(DeviceKind::dry);
  std::int64_t messages = 0, bytes = 0;
  for (int r = 0; r < 6; ++r) {
    auto log = std::make_shared<Log>();
    const auto grid = make_grid(Communicator(dry_world(r, 6, log)), {.sample = 2, .depth = 3});
    const auto layout = split_layout(grid, {4, 5}, {0, -1, -1, -1});
    gather_all(zeros(layout->box().extents()).with_layout(layout));
    for (const auto& record : *log)
      if (record.call == "send") ++messages, bytes += record.bytes;
  }
  // Every rank lacks one half of [4, 5].
  CHECK(messages == 6);
  CHECK(bytes == 6 * 2 * 5 * 4);
}

TEST_CASE("dry: a dry tensor can be laid out on a transport that moves data, which then moves nothing") {
  run_threads(2, [](std::shared_ptr<Transport> transport) {
    UseDevice device(DeviceKind::dry);
    run_network(make_grid(Communicator(std::move(transport)), {.depth = 2}), {2, 12, 12, 12, 2});
  });
}
