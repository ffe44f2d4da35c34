// Rates of this machine next to those that a machine file expects.

#include <algorithm>
#include <numeric>

#include "comm/together.h"
#include "examples/studies/plan/planner/machine/measure.h"
#include "examples/studies/plan/planner/step_time.h"
#include "examples/tools/selftest/selftest.h"
#include "models/train/profile.h"
#include "models/trainer/tool/quantile.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::selftest {
namespace {

using planner::Machine;

constexpr std::int64_t largest = 1 << 24;

// Seconds in which every rank sends `bytes` to the next one and to the previous one, on the slowest rank.
double halo_seconds(const Communicator& world, std::int64_t bytes) {
  auto& transport = world.transport();
  const int p = world.size(), next = (world.rank() + 1) % p, previous = (world.rank() + p - 1) % p;
  const std::vector<std::uint8_t> out(static_cast<std::size_t>(bytes), 1);
  std::vector<std::uint8_t> low(out.size()), high(out.size());
  const std::vector<Message> sends{{next, 0, const_cast<std::uint8_t*>(out.data()), bytes},
                                   {previous, 1, const_cast<std::uint8_t*>(out.data()), bytes}};
  const std::vector<Message> receives{{previous, 0, low.data(), bytes}, {next, 1, high.data(), bytes}};
  std::vector<double> rounds;
  for (int i = 0; i < 11; ++i) {
    transport.barrier();
    const double start = detail::seconds_now();
    transport.exchange(sends, receives, DType::uint8);
    double mine = detail::seconds_now() - start, slowest = 0;
    transport.allreduce(&mine, &slowest, 1, DType::float64, CombineOp::max);
    if (i > 0) rounds.push_back(slowest);
  }
  return tool::median(rounds);
}

double gigabytes(double bytes, double seconds) { return seconds > 0 ? 1e-9 * bytes / seconds : 0; }

// One collective or message of the machine, by the planner's model.
double expected_seconds(const Machine& machine, DryRecord call, const Communicator& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  call.ranks = std::make_shared<const std::vector<int>>(ranks);
  return planner::collective_seconds(call, machine, planner::working_node_ranks(machine, world.size(), 0));
}

// Messages of `bytes` from one rank to `peers` at the same time, and as many back: by the measured calls on the innermost level,
// and else by latency and bandwidth, as in the planner's steps.
double expected_messages(const Machine& machine, double bytes, int rank, const std::vector<int>& peers) {
  const auto measured = std::find_if(machine.calls.begin(), machine.calls.end(),
                                     [](const auto& call) { return call.call == "exchange" && call.ranks == 2; });
  double latency = 0, seconds = 0, within = 0;
  for (const int peer : peers) {
    const int at = machine.level_between(rank, peer);
    const auto& level = machine.levels[static_cast<std::size_t>(at)];
    if (at == 0 && measured != machine.calls.end()) within += bytes;
    else latency = std::max(latency, level.latency), seconds += bytes * level.sharing / level.bandwidth;
  }
  return latency + seconds + (within > 0 ? measured->seconds(within) : 0);
}

// The slowest rank decides.
double expected_halo(const Machine& machine, double bytes, int ranks) {
  double slowest = 0;
  for (int r = 0; r < ranks; ++r)
    slowest = std::max(slowest, expected_messages(machine, bytes, r, {(r + 1) % ranks, (r + ranks - 1) % ranks}));
  return slowest;
}

}  // namespace

void require_machine(const Communicator& world, const std::filesystem::path& file) {
  tool::together(world, [&] {
    int ranks = 0;
    try {
      ranks = planner::read_machine(file).ranks();
    } catch (const Error& error) {
      throw tool::UsageError(error.what());
    }
    if (ranks < world.size())
      throw tool::UsageError(fmt::format("{} has {} ranks, fewer than the {} of this run", file.string(), ranks, world.size()));
  });
}

std::vector<Rate> measure_rates(const Communicator& world, const std::filesystem::path& file) {
  std::optional<Machine> machine;
  if (!file.empty()) machine = planner::read_machine(file);
  std::vector<Rate> rates;
  const auto peaks = measure_peaks();  // of all ranks at once
  const bool on_cpu = current_device() == DeviceKind::cpu;
  const auto of_device = [&](double value) { return machine && on_cpu ? 1e-9 * value : 0; };
  rates.push_back({"products in float32, a rank", 0, 1e-9 * peaks.flops,
                   of_device(machine ? machine->device.flops["float32"] : 0), "Gflop/s"});
  rates.push_back({"memory, a rank", 0, 1e-9 * peaks.bytes, of_device(machine ? machine->device.memory_bandwidth : 0), "GB/s"});
  if (world.size() == 1) return rates;
  const auto calls = planner::measure_calls(world, largest);
  for (const auto& call : calls) {
    if (call.call != "exchange" && call.call != "allreduce") continue;
    // A small, a middle and a large message.
    for (const std::size_t i : {std::size_t{0}, call.points.size() / 2, call.points.size() - 1}) {
      const auto [bytes, seconds] = call.points[i];
      double expected = 0;
      if (machine && call.call == "allreduce")
        expected =
            expected_seconds(*machine, {.kind = CollectiveKind::allreduce, .bytes = static_cast<std::int64_t>(bytes)}, world);
      else if (machine) expected = expected_messages(*machine, bytes, 0, {1});
      // Small messages cost latency.
      const bool small = i == 0;
      rates.push_back({call.call == "exchange" ? "message each way, 2 ranks" : "allreduce", bytes,
                       small ? 1e6 * seconds : gigabytes(bytes, seconds),
                       expected == 0 ? 0
                       : small       ? 1e6 * expected
                                     : gigabytes(bytes, expected),
                       small ? "us" : "GB/s"});
    }
  }
  for (const std::int64_t bytes : {std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 23}) {
    const double seconds = halo_seconds(world, bytes);
    const double expected = machine ? expected_halo(*machine, static_cast<double>(bytes), world.size()) : 0;
    rates.push_back({"halos to two neighbours", static_cast<double>(bytes), gigabytes(2.0 * static_cast<double>(bytes), seconds),
                     gigabytes(2.0 * static_cast<double>(bytes), expected), "GB/s"});
  }
  if (world.rank() != 0) rates.clear();
  return rates;
}

}  // namespace mpigrad::selftest
