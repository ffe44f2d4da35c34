// What one rank allocates, and how long it takes, for P ranks: start, grid, network and training steps of CosmoFlow.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "ops/loss/loss.h"
#include "tests/bench/allocations.h"

namespace mpigrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view usage =
    R"(Usage: rank_growth [--threads]

Prints tables of the bytes that one rank requests from operator new (tensors of the dry device have no elements), and of the
milliseconds that it takes, at P ranks, and the exponent of their growth: bytes ~ P^exponent.
  without options   rank P / 2 + 1 on the dry transport, CosmoFlow at 512^3, P = 64, 256, 1024, 2048
  --threads         ranks that are threads of this process, CosmoFlow with 2 filters at 16^3, P = 64, 256; means over the ranks
)";

struct Cost {
  double bytes = 0, live = 0, peak = 0, milliseconds = 0;
};
const std::vector<std::string> phases{"session", "grid", "network", "first step", "later step"};
using Costs = std::vector<Cost>;  // of each phase

// Runs one phase after another, and keeps what each one costs.
class Phases {
 public:
  void run(const std::function<void()>& phase) {
    auto& now = testing::allocations_of_this_thread();
    const auto before = now;
    now.peak = now.live;
    const auto start = Clock::now();
    phase();
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    costs.push_back({static_cast<double>(now.requested - before.requested), static_cast<double>(now.live - before.live),
                     static_cast<double>(now.peak - before.live), took.count()});
  }
  Costs costs;
};

struct Case {
  std::string name;
  std::vector<GridExtents> grids;
};

std::vector<int> set_of_axes(int bits) {
  std::vector<int> axes;
  for (int a = 0; a < 4; ++a)
    if (bits >> a & 1) axes.push_back(a);
  return axes;
}

Costs costs_of(std::shared_ptr<Transport> transport, const GridExtents& extents, std::int64_t side, std::int64_t filters,
               std::int64_t batch, DeviceKind device) {
  UseDevice use(device);
  Phases phases;
  std::optional<Session> session;
  phases.run([&] { session.emplace(std::move(transport)); });
  GridPtr grid;
  // The communicators along all sets of axes that layers use.
  phases.run([&] {
    grid = session->grid(extents);
    for (int bits = 1; bits < 16; ++bits) grid->along(set_of_axes(bits));
  });
  CosmoFlow net({.filters = filters});
  std::optional<Adam> adam;
  LayoutPtr layout;
  phases.run([&] {
    layout = input_layout(grid, {batch, side, side, side, 4});
    net.build(layout, {.device = device});
    adam.emplace(net, AdamAttributes{});
  });
  for (int step = 0; step < 2; ++step)
    phases.run([&] {
      const auto targets = split_layout(grid, {batch, 4}, {0, -1, -1, -1});
      const auto tensor = [&](const LayoutPtr& of) { return constant(zeros(of->box().extents()).with_layout(of)); };
      Tape tape(net);
      adam->step(tape.gradient(mse(net(tensor(layout)), tensor(targets))));
    });
  return std::move(phases.costs);
}

// The slope of a line through the logarithms, by least squares.
double exponent(const std::vector<int>& ranks, const std::vector<double>& values) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  const auto n = static_cast<double>(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double x = std::log(ranks[i]), y = std::log(std::max(values[i], 1e-9));
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

void print_table(const std::string& name, const std::vector<int>& ranks, const std::vector<Costs>& costs) {
  fmt::print("\n### {}\n\n| |", name);
  for (const int p : ranks) fmt::print(" P = {} |", p);
  fmt::print(" exponent |\n|---|");
  for (std::size_t i = 0; i <= ranks.size(); ++i) fmt::print("--:|");
  fmt::print("\n");
  const auto row = [&](const std::string& title, double scale, int digits, double Cost::*what, std::size_t phase) {
    std::vector<double> values;
    fmt::print("| {} |", title);
    for (const auto& each : costs) values.push_back(each[phase].*what);
    for (const double value : values) fmt::print(" {:.{}f} |", value / scale, digits);
    fmt::print(" {:.2f} |\n", exponent(ranks, values));
  };
  for (std::size_t i = 0; i < phases.size(); ++i) row(phases[i] + ": KiB requested", 1024, 1, &Cost::bytes, i);
  row("grid: KiB kept", 1024, 1, &Cost::live, 1);
  row("first step: KiB kept", 1024, 1, &Cost::live, 3);
  row("later step: KiB at most", 1024, 1, &Cost::peak, 4);
  for (std::size_t i = 0; i < phases.size(); ++i) row(phases[i] + ": ms", 1, 2, &Cost::milliseconds, i);
}

void measure_dry() {
  const std::vector<int> ranks{64, 256, 1024, 2048};
  const std::vector<Case> cases{
      {"sample x 16 depth",
       {{.sample = 4, .depth = 16}, {.sample = 16, .depth = 16}, {.sample = 64, .depth = 16}, {.sample = 128, .depth = 16}}},
      {"sample only", {{.sample = 64}, {.sample = 256}, {.sample = 1024}, {.sample = 2048}}},
      {"depth x height x width, one sample",
       {{.depth = 4, .height = 4, .width = 4},
        {.depth = 8, .height = 8, .width = 4},
        {.depth = 16, .height = 8, .width = 8},
        {.depth = 16, .height = 16, .width = 8}}}};
  for (const auto& c : cases) {
    std::vector<Costs> all;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto once = [&] {
        return costs_of(dry_world(ranks[i] / 2 + 1, ranks[i], nullptr), c.grids[i], 512, 0, c.grids[i].sample, DeviceKind::dry);
      };
      if (i == 0) once();  // what is allocated once in a process
      all.push_back(once());
    }
    print_table("The dry transport, " + c.name, ranks, all);
  }
}

void measure_threads() {
  const std::vector<int> ranks{64, 256};
  std::vector<Costs> all;
  for (const int p : ranks) {
    std::mutex mutex;
    Costs mean(phases.size());
    run_threads(p, [&](std::shared_ptr<Transport> transport) {
      const auto own = costs_of(std::move(transport), {.sample = p / 4, .depth = 4}, 16, 2, p / 4, DeviceKind::cpu);
      std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < own.size(); ++i) {
        mean[i].bytes += own[i].bytes / p, mean[i].live += own[i].live / p, mean[i].peak += own[i].peak / p;
        mean[i].milliseconds += own[i].milliseconds / p;
      }
    });
    all.push_back(std::move(mean));
  }
  print_table("Ranks as threads, sample x 4 depth", ranks, all);
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad::bench;
  const bool threads = argc == 2 && std::strcmp(argv[1], "--threads") == 0;
  if (argc > 1 && !threads) {
    const bool help = argc == 2 && std::strcmp(argv[1], "--help") == 0;
    fmt::print(help ? stdout : stderr, "{}", usage);
    return help ? 0 : 2;
  }
  if (threads) measure_threads();
  else measure_dry();
}
