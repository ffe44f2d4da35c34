// The layout of a network for every rank of a large grid on the dry transport and device: every send has its receive, the members
// of every collective agree, messages have the predicted size, nothing is allocated. Also ranks that exchange nothing.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/halos/exchange.h"
#include "comm/halos/window_plan.h"
#include "framework/tensor/storage.h"
#include "models/trainer/ranks/silent_transport.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Log = std::vector<DryRecord>;

// Forward and backward of a small network; the cuts are uneven.
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
  auto y = conv(x, w1, b1, {.padding = 1, .activation = Activation::leaky_relu(0.1)});
  y = batch_norm(y, gamma, b1).y;
  y = max_pool(y, {.kernel = 2, .stride = 2});
  y = conv(y, w2, {.stride = 2, .padding = Padding::sides(1, 2), .activation = Activation::leaky_relu(0.1)});
  y = avg_pool(y, {.kernel = 3, .stride = 1, .padding = 1, .count_include_pad = false});
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

// Compares messages between two ranks with one tag, in order, and calls on one set of members, in order.
void check_logs(const std::vector<Log>& logs) {
  using Channel = std::tuple<int, int, int>;  // source, destination, tag
  std::map<Channel, std::vector<std::int64_t>> sent, received;
  std::map<std::uint64_t, std::vector<std::vector<std::string>>> collectives;  // per set of members: every rank's calls
  for (std::size_t r = 0; r < logs.size(); ++r) {
    std::map<std::uint64_t, std::vector<std::string>> mine;
    for (const auto& record : logs[r]) {
      const int me = static_cast<int>(r);
      if (record.what == DryRecord::What::send) sent[{me, record.peer, record.tag}].push_back(record.bytes);
      else if (record.what == DryRecord::What::receive) received[{record.peer, me, record.tag}].push_back(record.bytes);
      else mine[record.members].push_back(fmt::format("{} of {} bytes, root {}", record.name(), record.bytes, record.peer));
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
    conv(x, zeros({8, 5, 3, 3, 4}), {.padding = 2});
    // Two planes from every neighbour: [2, 2, 6, 7, 4] of float32.
    const std::int64_t plane = 2 * 6 * 7 * 4 * 4, neighbours = (r > 0) + (r < 4);
    std::int64_t sent = 0, received = 0;
    for (const auto& record : *log) (record.what == DryRecord::What::send ? sent : received) += record.bytes;
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
      if (record.what == DryRecord::What::send) ++messages, bytes += record.bytes;
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

// ---- ranks that exchange nothing

TEST_CASE("silent: a rank gets its own part of every call, zeros for the others', and waits for nobody") {
  run_threads(3, [](std::shared_ptr<Transport> real) {
    const auto t = silent_transport(real->duplicate());
    const auto group = t->split(0, 0);
    if (real->rank() == 2) return;  // the others do not wait for it
    for (const auto& each : {t, group}) {
      const int r = each->rank();
      std::vector<double> in{1.0 + r, 2.0 + r, 3.0 + r}, out(3, -1);
      each->allreduce(in.data(), out.data(), 3, DType::float64, CombineOp::sum);
      CHECK(out == in);
      each->allreduce(in.data(), in.data(), 3, DType::float64, CombineOp::max);
      CHECK(in == out);
      const std::vector<std::int64_t> ones{1, 1, 1};
      std::fill(out.begin(), out.end(), -1);
      each->allgather(in.data(), out.data(), ones, DType::float64);
      for (int q = 0; q < 3; ++q) CHECK(out[static_cast<std::size_t>(q)] == (q == r ? in[0] : 0));
      std::vector<double> all{5, 6, 7};
      each->allgather(all.data() + r, all.data(), ones, DType::float64);
      for (int q = 0; q < 3; ++q) CHECK(all[static_cast<std::size_t>(q)] == (q == r ? 5 + r : 0));
      all = {5, 6, 7};  // in place
      each->reduce_scatter(all.data(), all.data(), ones, DType::float64, CombineOp::sum);
      CHECK(all[0] == 5 + r);
      double part = -1;
      each->reduce_scatter(in.data(), &part, ones, DType::float64, CombineOp::sum);
      CHECK(part == in[static_cast<std::size_t>(r)]);
      std::fill(out.begin(), out.end(), -1);
      each->alltoall(in.data(), ones, out.data(), ones, DType::float64);
      for (int q = 0; q < 3; ++q) CHECK(out[static_cast<std::size_t>(q)] == (q == r ? in[static_cast<std::size_t>(r)] : 0));
      each->barrier();
      each->start(Collective{.kind = CollectiveKind::bcast, .out = in.data(), .type = DType::float64, .root = 2, .count = 3})
          .wait();
      CHECK(in[0] == 1.0 + r);
      double received = -1;
      each->exchange(std::vector<Message>{{2, 1, in.data(), 1}}, std::vector<Message>{{2, 1, &received, 1}}, DType::float64);
      CHECK(received == 0);
      received = -1;
      each->start_receive({any_source, any_tag, &received, 1}, DType::float64).wait();
      CHECK(received == 0);
    }
  });
}

TEST_CASE("silent: ranks that only wait get the same, not before the others have called") {
  std::atomic<int> called = 0;
  run_threads(3, [&](std::shared_ptr<Transport> real) {
    const auto t = silent_transport(real->duplicate(), Silence::waiting);
    const auto group = t->split(0, 0);
    const int r = real->rank(), right = (r + 1) % 3, left = (r + 2) % 3;
    // Before each call one rank sleeps: no rank may finish before it has called.
    int round = 0;
    const auto late = [&](const auto& call) {
      if (r == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++called;
      call();
      ++round;
    };
    std::vector<double> in{1.0 + r, 2.0 + r, 3.0 + r}, out(3, -1);
    late([&] { group->allreduce(in.data(), out.data(), 3, DType::float64, CombineOp::sum); });
    CHECK(called >= 3);
    CHECK(out == in);
    const std::vector<std::int64_t> ones{1, 1, 1};
    late([&] {
      t->start({.kind = CollectiveKind::allgather, .in = in.data(), .out = out.data(), .type = DType::float64, .counts = ones})
          .wait();
    });
    CHECK(called >= 6);
    for (int q = 0; q < 3; ++q) CHECK(out[static_cast<std::size_t>(q)] == (q == r ? in[0] : 0));
    // One of three elements arrives; an empty message stays empty.
    const std::vector<Message> sends{{right, 1, in.data(), 3}, {left, 2, nullptr, 0}};
    std::vector<double> received(3, -1);
    const std::vector<Message> receives{{left, 1, received.data(), 3}, {right, 2, nullptr, 0}};
    late([&] { t->start_round(sends, receives, DType::float64).wait(); });
    CHECK(received == std::vector<double>{1.0 + left, 0, 0});
    late([&] { t->exchange(sends, receives, DType::float64); });
    CHECK(received == std::vector<double>{1.0 + left, 0, 0});
    late([&] {
      auto receive = t->start_receive({any_source, any_tag, received.data(), 2}, DType::float64);
      t->exchange(std::vector<Message>{{right, 5, in.data(), 2}}, {}, DType::float64);
      receive.wait();
      CHECK(receive.status().source == left);
    });
  });
}
