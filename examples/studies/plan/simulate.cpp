// plan simulate: simulates some steps on all ranks of a grid, and shows the costs of one rank's delay for the others.

#include "examples/studies/plan/simulate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/search/layer_grids.h"
#include "examples/studies/plan/planner/simulation/program.h"
#include "examples/studies/plan/scaling.h"
#include "models/trainer/options.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

using Json = nlohmann::ordered_json;
using tool::UsageError;

constexpr std::int64_t most_trace_ranks = 64, usual_trace_ranks = 8;
constexpr std::int64_t most_ranks = 65536;  // for networks that are laid out

// Parses "17:1.5".
std::pair<int, double> parse_straggler(const std::string& text, int ranks) {
  int rank = 0;
  double factor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, rank);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':') {
    const auto second = std::from_chars(first.ptr + 1, end, factor);
    if (second.ec == std::errc() && second.ptr == end && rank >= 0 && std::isfinite(factor) && factor > 0) {
      if (rank >= ranks) throw UsageError(fmt::format("--straggler {}: ranks are 0 to {}", text, ranks - 1));
      return {rank, factor};
    }
  }
  throw UsageError(fmt::format("--straggler: a rank and a factor such as 17:1.5 are needed, not '{}'", text));
}

using Run = SimulatedRun;

void simulate(const SimulateOptions& o, Run& run) {
  const auto subject = subject_named(o.network, o.size);
  const auto& g = run.choice.grid;
  const std::pair<const char*, int> axes[]{{"depth", g.depth}, {"height", g.height}, {"width", g.width}};
  for (int d = 0; d < 3; ++d)
    if (axes[d].second > subject.input[d + 1])
      throw UsageError(
          fmt::format("--grid {}: {} has {} places along {}", o.grid, o.network, subject.input[d + 1], axes[d].first));
  planner::SearchOptions laid{.ranks = run.ranks, .batch = o.batch};
  laid.optimizer = planner::adam_on(run.machine.device.gpu);
  const int node_ranks = planner::working_node_ranks(run.machine, run.ranks, static_cast<int>(o.node_ranks));
  const bool tf32 = run.choice.precision == "tf32";
  planner::SimulateOptions options{
      .steps = static_cast<int>(o.steps), .jitter = o.jitter, .seed = static_cast<std::uint64_t>(o.seed)};
  options.node_ranks = node_ranks, options.tf32 = tf32, options.contention = !o.no_contention;
  if (!o.straggler.empty()) std::tie(options.straggler, options.straggler_factor) = parse_straggler(o.straggler, run.ranks);
  if (!o.trace.empty()) {
    const auto count = std::min<std::int64_t>(o.trace_ranks > 0 ? o.trace_ranks : usual_trace_ranks, run.ranks);
    for (int rank = 0; rank < count; ++rank) options.traced.push_back(rank);
    // The straggler is always traced: it replaces the last traced rank.
    if (options.straggler >= count) options.traced.back() = options.straggler;
  }
  // By the sum of op times, on the slowest rank.
  const auto traced = [&](int rank) {
    auto step = planner::traced(subject, run.choice, laid, rank);
    run.memory = std::max(run.memory, step.peak_bytes);
    auto time = planner::time_step(step, rank, run.machine, {.node_ranks = node_ranks, .tf32 = tf32, .grid = g});
    if (time.total > run.predicted.total) run.predicted = std::move(time);
    return step;
  };
  if (run.choice.grids.empty()) {
    // One rank represents all.
    const int rank = planner::representative_rank(g);
    run.simulation = planner::simulate(traced(rank), rank, g, run.machine, options);
  } else {
    std::vector<GridExtents> grids{g};
    for (const auto& own : run.choice.grids) grids.push_back(own.grid);
    const auto programs =
        planner::programs_of(traced, planner::repeating_ranks(grids, o.batch), g, run.machine, node_ranks, tf32);
    run.simulation = planner::simulate(programs, g, run.machine, options);
  }
  laid.ranks = 1;
  const auto whole = planner::traced(subject, {.precision = run.choice.precision}, laid, 0);
  const auto on_one_rank = planner::time_step(whole, 0, run.machine, {.node_ranks = 1, .tf32 = tf32});
  run.work = on_one_rank.forward + on_one_rank.backward + on_one_rank.update;
}

Json to_json(const SimulateOptions& o, const Run& run) {
  const auto& s = run.simulation;
  const auto mean = mean_of(s);
  const auto& slowest = s.ranks[static_cast<std::size_t>(s.slowest)];
  const auto steps = static_cast<double>(s.steps.size());
  return {{"network", o.network},
          {"machine", run.machine.name},
          {"choice", to_string(run.choice)},
          {"ranks", run.ranks},
          {"batch", o.batch},
          {"steps_s", s.steps},
          {"seconds_per_step", s.mean},
          {"samples_per_second", static_cast<double>(o.batch) / s.mean},
          {"predicted_s", run.predicted.total},
          {"compute_s", mean.work},
          {"halos_s", mean.halos},
          {"redistribution_s", mean.redistribution},
          {"collectives_s", mean.collectives},
          {"utilisation", s.utilisation},
          {"efficiency", run.work / (run.ranks * s.mean)},
          {"slowest",
           {{"rank", s.slowest},
            {"compute_s", slowest.work / steps},
            {"standing_still_s", (slowest.halos + slowest.redistribution + slowest.collectives) / steps}}},
          {"critical",
           {{"cause", s.critical.cause()},
            {"compute_s", s.critical.work},
            {"halos_s", s.critical.halos},
            {"collectives_s", s.critical.collectives}}},
          {"trace", o.trace.empty() ? Json() : Json(o.trace)}};
}

void print(const SimulateOptions& o, const Run& run) {
  const auto& s = run.simulation;
  fmt::print("{} on {} rank{} of {} ({}), {} sample{} in a step\n\n", o.network, run.ranks, run.ranks == 1 ? "" : "s",
             run.machine.name, to_string(run.choice), o.batch, o.batch == 1 ? "" : "s");
  const auto line = [](const std::string& name, const std::string& value, const std::string& more = {}) {
    fmt::print("{:<24} {:>16}{}{}\n", name, value, more.empty() ? "" : "  ", more);
  };
  const auto ms = [](double seconds) { return fmt::format("{:.5g} ms", 1e3 * seconds); };
  const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
  const auto extremes = std::minmax_element(s.steps.begin(), s.steps.end());
  line("a step", ms(s.mean),
       s.steps.size() == 1 ? "one"
                           : fmt::format("mean of {}, from {} to {}", s.steps.size(), ms(*extremes.first), ms(*extremes.second)));
  line("  by the sum of ops", ms(run.predicted.total), "without what ranks cost each other");
  line("samples per second", fmt::format("{:.5g}", static_cast<double>(o.batch) / s.mean));
  const auto mean = mean_of(s);
  fmt::print("\nOf a step, on average of all ranks:\n");
  const auto part = [&](const char* name, double seconds) {
    line(name, ms(seconds), percent(s.mean > 0 ? seconds / s.mean : 0));
  };
  part("  compute", mean.work);
  part("  waiting for halos", mean.halos);
  if (mean.redistribution > 0) part("  for other grids", mean.redistribution);
  part("  for collectives", mean.collectives);
  line("efficiency", percent(run.work / (run.ranks * s.mean)), fmt::format("a single rank works {}", ms(run.work)));
  const auto& slowest = s.ranks[static_cast<std::size_t>(s.slowest)];
  line("slowest rank", fmt::format("{}", s.slowest),
       fmt::format("works {} a step, {} more than the mean", ms(slowest.work / static_cast<double>(s.steps.size())),
                   percent(mean.work > 0 ? slowest.work / static_cast<double>(s.steps.size()) / mean.work - 1 : 0)));
  line("the last step's cause", s.critical.cause(),
       fmt::format("on its longest path {} of compute, {} of messages, {} of collectives", ms(s.critical.work),
                   ms(s.critical.halos), ms(s.critical.collectives)));
  if (!o.trace.empty()) fmt::print("\n{} opens in https://ui.perfetto.dev\n", o.trace);
}

void check(const SimulateOptions& o, const Run& run) {
  if (run.ranks > run.machine.ranks())
    throw UsageError(fmt::format("--grid {} has {} ranks, {} has {}", o.grid, run.ranks, run.machine.name, run.machine.ranks()));
  if (o.batch < run.choice.grid.sample)
    throw UsageError(
        fmt::format("--grid {}: a batch of {} has no sample for each of {}", o.grid, o.batch, run.choice.grid.sample));
  if (o.precision == "tf32" && !run.machine.device.flops.contains("tf32"))
    throw UsageError(fmt::format("--precision tf32: {} has none", run.machine.device.name));
  if (o.trace.empty() && o.scaling.empty() && (o.trace_ranks > 0 || o.overwrite))
    throw UsageError("--trace-ranks and --overwrite are for --trace");
  if (!o.trace.empty() && !o.overwrite && std::filesystem::exists(o.trace))
    throw UsageError(fmt::format("--trace {} exists: choose another, or say --overwrite", o.trace));
}

}  // namespace

planner::RankTime mean_of(const planner::Simulation& simulation) {
  planner::RankTime mean;
  const double count = static_cast<double>(simulation.ranks.size()) * static_cast<double>(simulation.steps.size());
  for (const auto& rank : simulation.ranks) {
    mean.work += rank.work / count, mean.halos += rank.halos / count;
    mean.redistribution += rank.redistribution / count, mean.collectives += rank.collectives / count;
  }
  return mean;
}

void add_simulate(CLI::App& app, SimulateOptions& o) {
  auto* command = app.add_subcommand("simulate", "simulates some steps on all ranks of a grid, with contention and late ranks");
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t low, std::int64_t high, const char* text) {
    return command->add_option(name, value, text)->check(tool::whole_number(low, high));
  };
  command->add_option("--network", o.network, "cosmoflow, cosmoflow-mlperf, unet3d, unet3d-lbann, resnet50, vgg16, alexnet")
      ->required();
  whole("--size", o.size, 1, 1 << 20, "extent of its volumes or images (default: the network's own)");
  command->add_option("--machine", o.machine, "machine file, such as examples/machines/perlmutter.toml")->required();
  command->add_option("--grid", o.grid, "ranks along sample, depth, height, width, filter and channel")
      ->required()
      ->type_name("AXIS=RANKS,...");
  command
      ->add_option(
          "--grid-of", o.grid_of,
          "layers that have a grid of their own, such as conv5-7:sample=4; may be given several times. Each rank is laid "
          "out then, except those that repeat others' work with their own samples")
      ->type_name("LAYERS:AXIS=RANKS,...");
  whole("--batch", o.batch, 1, 1'000'000'000, "samples in a step, on all ranks together")->required();
  command->add_option("--precision", o.precision, "type in which layers compute")
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16", "float16"}))
      ->capture_default_str();
  whole("--steps", o.steps, 1, 10'000, "to simulate")->capture_default_str();
  command->add_option("--jitter", o.jitter, "standard deviation of every op's time relative to the time")
      ->check(tool::number_from(0))
      ->capture_default_str();
  command->add_option("--straggler", o.straggler, "a rank that takes so many times as long")->type_name("RANK:FACTOR");
  whole("--seed", o.seed, 0, std::numeric_limits<std::int64_t>::max(), "of the jitter")->capture_default_str();
  whole("--node-ranks", o.node_ranks, 1, most_ranks,
        "ranks of a node, of measured ops (default: of the machine's innermost level)");
  command->add_flag("--recompute", o.recompute, "recomputation, as plan best proposes if a network does not fit otherwise");
  command->add_flag("--sharded-weights", o.sharded_weights, "weights in parts, one on each rank; slow on thousands of ranks");
  command->add_flag("--no-contention", o.no_contention, "ranks do not share links between nodes");
  command->add_option("--trace", o.trace, "file for a trace of the first ranks, for the Perfetto viewer");
  whole("--trace-ranks", o.trace_ranks, 1, most_trace_ranks, "ranks in it, the straggler among them (default: 8)");
  command
      ->add_option(
          "--scaling", o.scaling,
          "larger and larger grids, from --grid to --to-ranks: weak doubles samples and batch, strong splits space further")
      ->check(CLI::IsMember({"strong", "weak"}));
  whole("--to-ranks", o.to_ranks, 1, most_ranks, "ranks of the largest grid of --scaling");
  command->add_option("--plot", o.plot, "PNG of the curve of --scaling, and a CSV file of the same name");
  command->add_flag("--overwrite", o.overwrite, "replace the trace or the picture of an earlier run");
  command->add_flag("--json", o.json, "print one JSON document and nothing else");
}

SimulatedRun simulated(const SimulateOptions& o) {
  Run run;
  run.choice = {.grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split), .split = trainer::split_of(o.grid)};
  if (run.choice.grid.stage > 1) throw UsageError("--grid: `plan simulate` has no stages; `plan best` predicts pipelines");
  run.choice.precision = o.precision;
  run.choice.recompute = o.recompute, run.choice.sharded_weights = o.sharded_weights;
  if (o.recompute && !network_named(o.network).recomputing)
    throw UsageError(fmt::format("--recompute: {} has no blocks that are computed again", o.network));
  const auto& g = run.choice.grid;
  // The product of extents may exceed 32 bits.
  double ranks = 1;
  for (const int along : {g.sample, g.depth, g.height, g.width, g.channel, g.filter}) ranks *= along;
  if (ranks > static_cast<double>(most_ranks))
    throw UsageError(fmt::format("--grid {}: networks are laid out for up to {} ranks", o.grid, most_ranks));
  run.ranks = ranks_of(g);
  trainer::Options layers;
  layers.grid_of = o.grid_of;
  run.choice.grids = trainer::layer_grids(layers, run.ranks);
  try {
    run.machine = machine_of(o.machine);
    check(o, run);
    simulate(o, run);
  } catch (const Error& error) {
    throw UsageError(error.what());  // a machine file, or a size or a grid that the network cannot have
  }
  return run;
}

int simulate(const SimulateOptions& o) {
  if (!o.scaling.empty()) return scaling(o);
  if (o.to_ranks > 0 || !o.plot.empty()) throw UsageError("--to-ranks and --plot are for --scaling");
  const auto run = simulated(o);
  if (!o.trace.empty()) trainer::write_text(o.trace, planner::perfetto(run.simulation));
  if (o.json) fmt::print("{}\n", tool::to_text(to_json(o, run)));
  else print(o, run);
  return 0;
}

}  // namespace mpigrad::plan
