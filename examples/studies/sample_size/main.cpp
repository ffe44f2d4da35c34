// Do larger samples learn better? Cubes of several sizes from the same universes, with equal numbers of voxels a step and of
// steps.
//
//   mpiexec -n 2 build/examples/sample_size --out sample-size
//
// resumes where it stopped when it is called again. It ends with a table, a picture and the findings, compared with published
// results and with the limit that the information in a Gaussian field of that volume allows.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "comm/launch.h"
#include "comm/process/threads.h"
#include "examples/studies/sample_size/report.h"
#include "examples/studies/sample_size/study.h"
#include "examples/tools/universe/spectrum_regression.h"
#include "framework/base/joined.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::sample_size {

namespace {

// Scores on the universes of the training; none if some files are older than these scores, or if there are too few universes.
std::optional<Scores> score_training(const StudyOptions& o, std::int64_t size, const std::vector<std::filesystem::path>& files) {
  if (o.training < least_universes) return std::nullopt;
  std::vector<std::vector<CubePrediction>> learned;
  for (const auto& predictions : files) {
    const auto file = training_predictions(predictions);
    if (!std::filesystem::exists(file)) return std::nullopt;
    learned.push_back(read_predictions(o, size, file, o.training));
  }
  return score(learned, o.seed);
}

// On one rank.
void tell(const StudyOptions& o, const std::vector<std::int64_t>& seeds) {
  Results results{.box = o.box, .cell = o.cell};
  for (const auto size : o.sizes) {
    std::vector<std::filesystem::path> files;
    std::vector<std::vector<CubePrediction>> trainings;
    for (const auto seed : seeds) {
      files.push_back(predictions_of(o, size, seed));
      trainings.push_back(read_predictions(o, size, files.back(), o.test));
    }
    const auto file = regression_of(o, size);
    const auto regression = read_predictions(o, size, file, o.test);
    auto& result = results.sizes.emplace_back(evaluate(size, o.box, o.cell, trainings, regression, o.seed));
    result.training = score_training(o, size, files), result.regression_training = score_training(o, size, {file});
  }
  const auto text = write_report(results, o.out);
  if (o.json) fmt::print("{}\n", tool::to_text(to_json(results)));
  else fmt::print("{}", text);
}

void add_options(CLI::App& app, StudyOptions& o) {
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t low, std::int64_t high, const char* text) {
    app.add_option(name, value, text)->check(tool::whole_number(low, high))->capture_default_str();
  };
  app.add_option("--out", o.out,
                 "folder of the study: universes, which may exist already, a folder for each training, the report")
      ->capture_default_str();
  app.add_option("--sizes", o.sizes, "sides of the cubes, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::whole_number(16, 1 << 12))
      ->capture_default_str();
  whole("--box", o.box, 16, 1 << 12, "cells along each side of a universe, all of whose cubes are used");
  app.add_option("--cell", o.cell, "side of a universe's cell in Mpc/h")->check(tool::number_above(0))->capture_default_str();
  whole("--training", o.training, 2, 1 << 20, "universes to learn from");
  whole("--test", o.test, least_universes, 1 << 20, "universes to score on");
  app.add_option("--seed", o.seed, "seed of the universes")->check(tool::whole_number(0))->capture_default_str();
  whole("--seeds", o.seeds, 1, 1000, "trainings of each size");
  whole("--epochs", o.epochs, 1, 1 << 20, "passes over the universes; a step takes as many voxels as eight universes have");
  app.add_option("--learning-rate", o.learning_rate,
                 "learning rate of Adam, the same for every size; a warm-up of an eighth of the epochs, at most one, then half a "
                 "cosine to 0")
      ->check(tool::number_above(0))
      ->capture_default_str();
  app.add_option("--network", o.network, "pyramid (statistics at several scales) or cosmoflow (the hybrid variant)")
      ->check(CLI::IsMember({"pyramid", "cosmoflow"}))
      ->capture_default_str();
  auto* report = app.add_flag("--report", o.report, "train nothing: print table and picture of the finished trainings in --out");
  for (const auto* name :
       {"--box", "--cell", "--training", "--test", "--seed", "--seeds", "--epochs", "--learning-rate", "--network"})
    report->excludes(app.get_option(name));
  app.add_flag("--json", o.json, "print one JSON document");
  app.add_flag("--quiet", o.quiet, "no lines of progress");
}

void check(StudyOptions& o) {
  std::sort(o.sizes.begin(), o.sizes.end());
  if (std::adjacent_find(o.sizes.begin(), o.sizes.end()) != o.sizes.end()) throw tool::UsageError("--sizes names a size twice");
  using universe::largest_side, universe::most_cells;
  if (!o.sizes.empty() && o.sizes.back() > largest_side)
    throw tool::UsageError(
        fmt::format("--sizes {}: the regression for comparison takes cubes of at most {}^3", o.sizes.back(), largest_side));
  if (o.test > most_cells / (o.box * o.box * o.box))
    throw tool::UsageError(fmt::format("--test {}: the regression for comparison predicts at most {} cells, {} boxes of {}^3",
                                       o.test, most_cells, most_cells / (o.box * o.box * o.box), o.box));
  for (const auto size : o.sizes) {
    if (o.box % size != 0)
      throw tool::UsageError(fmt::format("--sizes {}: a box of {}^3 cannot be cut into such cubes", size, o.box));
    if ((size & (size - 1)) != 0) throw tool::UsageError(fmt::format("--sizes {}: sides are powers of two", size));
  }
}

// The seeds for --report: those whose trainings are done for all sizes, restricted to the given ones.
std::vector<std::int64_t> find_report(StudyOptions& o, bool sizes_given) {
  read_study(o);
  if (!sizes_given) o.sizes = sizes_done(o);
  check(o);
  auto seeds = o.sizes.empty() ? std::vector<std::int64_t>() : seeds_done(o);
  if (!seeds.empty()) return seeds;
  if (o.sizes.empty()) throw tool::UsageError(fmt::format("--report: no training in {} is done", o.out));
  throw tool::UsageError(
      fmt::format("--report: in {} no seed's trainings of all sizes {} are done", o.out, joined(o.sizes, ", ")));
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Do larger samples learn better? One study, from simulated universes to the table.", "sample_size");
  StudyOptions o;
  add_options(app, o);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    std::vector<std::int64_t> seeds(static_cast<std::size_t>(o.seeds));
    std::iota(seeds.begin(), seeds.end(), 1);
    if (o.report) {
      trainer::together(world, [&] { seeds = find_report(o, tool::given_options(app).contains("--sizes")); });
    } else {
      check(o);
      if (const int code = train_all(world, o); code != 0) return code;
    }
    trainer::together(world, [&] {
      if (world.rank() == 0) tell(o, seeds);
    });
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad::sample_size

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::sample_size::run(transport, argc, argv);
  });
}
