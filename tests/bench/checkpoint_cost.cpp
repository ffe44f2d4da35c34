// The cost of checkpoints in a training of CosmoFlow: how long it is blocked, and how much longer the whole training takes.
//
//   build/tests/checkpoint_cost [--side 64] [--steps 200] [--rounds 3] [--folder /tmp]; mpiexec -n 2 build/tests/checkpoint_cost
//   build/tests/checkpoint_cost --steady [--block 100] [--quads 10]
//   build/tests/checkpoint_cost --stragglers --block 20 --quads 30
//
// Every round runs the same training without checkpoints and in each of the ways, in turn, in one process. Ratios are those of
// median times, shares are those of the run including start-up. --steady compares blocks of steps within one training after its
// start: for small differences on machines whose speed changes. --stragglers does the same for the timers of the straggler table
// (models/train/stragglers.h).

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

#include "comm/launch.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "models/train/trainer.h"
#include "ops/loss/loss.h"
#include "tests/bench/steady_cost.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::int64_t side = 64, steps = 200;
  int rounds = 3;
  std::string folder = std::filesystem::temp_directory_path().string();
};

struct Way {
  const char* name;
  std::int64_t every;  // steps; 0: never
  bool asynchronous;
};
constexpr std::array ways{Way{"none", 0, true}, Way{"every 100 steps", 100, true}, Way{"every 10 steps", 10, true},
                          Way{"every 10 steps, training waits", 10, false}};

struct Times {
  double seconds = 0, still = 0, slowest = 0;
  std::int64_t written = 0, skipped = 0;
};

Times train_once(Session& session, const Options& o, const Way& way, const std::filesystem::path& folder) {
  const auto grid = session.grid({.depth = session.ranks()});
  const data::Loader loader(made_volumes(o.side, o.steps), {.grid = grid, .batch = 1, .cache_bytes = 0});
  CosmoFlow net(CosmoFlowOptions{});
  net.build(loader.layout(), {.seed = 1});
  Adam adam(net, AdamAttributes{});
  TrainerOptions options;
  options.fit.epochs = 1, options.progress = {.quiet = true};
  options.folder = folder, options.checkpoint_steps = way.every, options.wait_for_checkpoints = !way.asynchronous;
  const TrainerHooks hooks{.loss = mse};
  const auto begin = std::chrono::steady_clock::now();
  const auto result = train(net, adam, loader, session.world(), hooks, options);
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {all, result.checkpoint_seconds, result.slowest_checkpoint, result.checkpoints, result.skipped_checkpoints};
}

// A number of rank 0's process, the same on all ranks.
std::int64_t number_of(Session& session) {
  std::int64_t number = getpid();
  session.world().transport().bcast(&number, 1, DType::int64, 0);
  return number;
}

const Times& middle(std::vector<Times>& times) {
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return times[times.size() / 2];
}

void measure(Session& session, const Options& o, const std::filesystem::path& folder) {
  (void)train_once(session, {.side = o.side, .steps = 5}, ways[1], folder);  // warm up
  std::vector<std::vector<Times>> times(ways.size());
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const auto w = (i + static_cast<std::size_t>(round)) % ways.size();  // each way has each position in turn
      times[w].push_back(train_once(session, o, ways[w], folder));
    }
  if (session.rank() != 0) return;
  const double plain = middle(times[0]).seconds;
  fmt::print("CosmoFlow at {}^3, {} ranks, {} steps of {:.3f} s, middle of {} rounds\n", o.side, session.ranks(), o.steps,
             plain / static_cast<double>(o.steps), o.rounds);
  fmt::print("{:<32}{:>9}{:>8}{:>13}{:>12}{:>9}{:>9}\n", "checkpoints", "seconds", "ratio", "stands still", "longest, s",
             "written", "skipped");
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const auto& t = middle(times[w]);
    fmt::print("{:<32}{:>9.2f}{:>8.3f}{:>11.2f} %{:>12.4f}{:>9}{:>9}\n", ways[w].name, t.seconds, t.seconds / plain,
               100 * t.still / t.seconds, t.slowest, t.written, t.skipped);
  }
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("The cost of checkpoints in a training of CosmoFlow.");
  app.add_option("--side", o.side, "extent of the volumes")->check(CLI::Range(32, 512))->capture_default_str();
  app.add_option("--steps", o.steps, "steps of each training")->check(CLI::Range(20, 1000000))->capture_default_str();
  app.add_option("--rounds", o.rounds)->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--folder", o.folder, "folder of written files")->capture_default_str();
  bench::SteadyOptions steady;
  bool checkpoints = false, stragglers = false;
  auto* steadily =
      app.add_flag("--steady", checkpoints, "blocks of steps with and without a checkpoint, in turn, within one training");
  app.add_flag("--stragglers", stragglers, "the same for the timers of the straggler table")->excludes(steadily);
  app.add_option("--block", steady.block, "steps per block")->check(CLI::Range(4, 1000000))->capture_default_str();
  app.add_option("--quads", steady.quads, "number of groups of four blocks")->check(CLI::Range(1, 100000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) {
    const auto folder = std::filesystem::path(o.folder) / fmt::format("mpigrad_checkpoint_cost_{}", bench::number_of(session));
    if (session.rank() == 0) std::filesystem::create_directories(folder);
    session.world().transport().barrier();
    auto blocks = steady;
    blocks.side = o.side, blocks.folder = folder;
    if (checkpoints) bench::measure_checkpoints(session, blocks);
    else if (stragglers) bench::measure_stragglers(session, blocks);
    else bench::measure(session, o, folder);
    session.world().transport().barrier();
    if (session.rank() == 0) std::filesystem::remove_all(folder);
  });
}
