#include "tests/bench/steady_cost.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "comm/transport/waited.h"
#include "framework/optim/optimizer.h"
#include "models/data/sources/function.h"
#include "models/networks/cosmoflow.h"
#include "models/train/restart/checkpoints.h"
#include "models/train/stragglers.h"
#include "models/train/trainer.h"
#include "models/trainer/tool/quantile.h"
#include "ops/loss/loss.h"

namespace mpigrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A training of CosmoFlow whose epochs are blocks.
class Blocks {
 public:
  Blocks(Session& session, const SteadyOptions& o)
      : session_(session), o_(o),
        loader_(made_volumes(o.side, o.block), {.grid = session.grid({.depth = session.ranks()}), .batch = 1, .cache_bytes = 0}) {
    net.build(loader_.layout(), {.seed = 1});
    adam.emplace(net, AdamAttributes{});
  }

  // Seconds of a block.
  double run(FitOptions options) {
    options.first_epoch = block_++, options.epochs = block_;
    session_.world().transport().barrier();
    const auto start = Clock::now();
    fit(net, *adam, loader_, hooks.loss, session_.world(), options);
    session_.world().transport().barrier();
    return since(start);
  }

  CosmoFlow net{CosmoFlowOptions{}};
  std::optional<Adam> adam;
  const TrainerHooks hooks{.loss = mse};

 private:
  Session& session_;
  const SteadyOptions& o_;
  data::Loader loader_;
  std::int64_t block_ = 0;
};

// Alternates blocks with and without; prints the ratio of every four blocks, whose spread shows the reliability of the median.
void compare(Session& session, const SteadyOptions& o, const char* what, const std::function<double()>& with,
             const std::function<double()>& without) {
  (void)without(), (void)with();  // warm up
  std::vector<double> ratios;
  double all_with = 0, all_without = 0;
  for (int quad = 0; quad < o.quads; ++quad) {
    const double first = with(), second = without(), third = without(), fourth = with();
    ratios.push_back((first + fourth) / (second + third));
    all_with += first + fourth, all_without += second + third;
  }
  if (session.rank() != 0) return;
  const auto steps = static_cast<double>(2 * o.quads * o.block);
  fmt::print("CosmoFlow at {}^3, {} ranks, blocks of {} steps, {} times four of them\n", o.side, session.ranks(), o.block,
             o.quads);
  fmt::print("{:<34}{:>9.3f} ms a step, without {:.3f}\n", what, 1e3 * all_with / steps, 1e3 * all_without / steps);
  fmt::print("{:<34}{:>9.4f}; a quarter of the fours below {:.4f}, a quarter above {:.4f}; of all together {:.4f}\n",
             "  ratio, the middle one", tool::median(ratios), tool::quantile(ratios, 0.25), tool::quantile(ratios, 0.75),
             all_with / all_without);
}

}  // namespace

std::shared_ptr<data::Source> made_volumes(std::int64_t side, std::int64_t samples) {
  data::FunctionSamples made{.size = samples, .extents = {side, side, side}, .channels = 4, .target_names = {"a", "b", "c", "d"}};
  made.values = [](std::int64_t sample, const Box&, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(sample)) % 5);
  };
  made.targets = [](std::int64_t sample) { return std::vector<double>(4, static_cast<double>(sample % 3) / 3); };
  return std::make_shared<data::FunctionSource>(made);
}

void measure_checkpoints(Session& session, const SteadyOptions& o) {
  Blocks blocks(session, o);
  // The trainer's own policy, asked only in steps of blocks that have checkpoints.
  const TrainerOptions options{.folder = o.folder, .checkpoint_steps = o.block};
  TrainerResult result;
  const auto begin = Clock::now();
  Checkpoints checkpoints(blocks.net, *blocks.adam, session.world(), blocks.hooks, options, result);
  const double start_up = since(begin);
  FitOptions writes;
  writes.interrupts = [&](std::int64_t, std::int64_t behind) { return checkpoints.due(behind + o.block / 2); };
  writes.interrupt = [&](std::int64_t epoch, const EpochPosition& at) {
    return checkpoints.write({.step = blocks.adam->steps(), .epoch = epoch, .epoch_step = at.steps, .epoch_steps = o.block});
  };
  compare(
      session, o, fmt::format("a checkpoint every {} steps", o.block).c_str(), [&] { return blocks.run(writes); },
      [&] { return blocks.run({}); });
  checkpoints.finish();
  if (session.rank() != 0) return;
  fmt::print("{:<34}{:>9.3f} s, for the memory of copies, once\n", "  start-up", start_up);
  fmt::print("{:<34}{:>9.3f} ms for each, {:.3f} ms the longest; {} written, {} skipped\n", "  training stands still",
             1e3 * result.checkpoint_seconds / static_cast<double>(result.checkpoints), 1e3 * result.slowest_checkpoint,
             result.checkpoints, result.skipped_checkpoints);
}

void measure_stragglers(Session& session, const SteadyOptions& o) {
  Blocks blocks(session, o);
  const TrainerOptions options{.folder = o.folder, .notes_signals = true};
  TrainerResult result;
  Checkpoints checkpoints(blocks.net, *blocks.adam, session.world(), blocks.hooks, options, result);
  FitOptions told;
  told.times = &result.times;
  told.interrupts = [&](std::int64_t, std::int64_t behind) { return checkpoints.due(behind); };
  told.interrupt = [&](std::int64_t epoch, const EpochPosition& at) {
    return checkpoints.write({.epoch = epoch, .epoch_step = at.steps, .epoch_steps = o.block});
  };
  compare(
      session, o, "times for the table of stragglers", [&] { return blocks.run(told); },
      [&] {
        const detail::WaitTimer quiet(&detail::Waited::messages);  // no timers of other code run within it
        return blocks.run({});
      });
  checkpoints.finish();
  const auto table = straggler_table(result.times, session.world());
  if (session.rank() == 0) fmt::print("{}", table);
}

}  // namespace mpigrad::bench
