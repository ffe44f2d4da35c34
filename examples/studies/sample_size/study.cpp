#include "examples/studies/sample_size/study.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "examples/tools/universe/simulation.h"
#include "examples/tools/universe/spectrum_regression.h"
#include "framework/base/new_file.h"
#include "models/data/data.h"
#include "models/data/sources/hdf5.h"
#include "models/evaluate/last_layer.h"
#include "models/trainer/folder/folder_lock.h"
#include "models/trainer/run_training.h"
#include "ops/loss/loss.h"

namespace mpigrad::sample_size {
namespace {

namespace fs = std::filesystem;

// Each rank simulates some of the missing universes; existing ones stay.
void simulate_missing(const Communicator& world, const StudyOptions& o) {
  const auto folder = fs::path(o.out) / "universes";
  auto& transport = world.transport();
  trainer::together(world, [&] {
    std::error_code error;
    fs::create_directories(folder, error);
    require(fs::is_directory(folder), "[sample_size] the folder {} cannot be made: {}", folder.string(), error.message());
  });
  const universe::Simulation simulation{.size = o.box, .cell = o.cell, .seed = o.seed};
  const universe::SlabFft fft(world.size() > 1 ? transport.subgroup(std::array{world.rank()}) : world.shared_transport(),
                              simulation.size);
  const auto count = o.training + o.test;
  std::vector<std::int64_t> missing;
  trainer::together(world, [&] {
    for (std::int64_t i = 0; i < count; ++i)
      if (!fs::exists(folder / universe::file_name(static_cast<std::uint64_t>(i)))) missing.push_back(i);
  });
  // All ranks have looked before the first one writes.
  transport.barrier();
  if (!missing.empty() && world.rank() == 0 && !o.quiet)
    fmt::print(stderr, "simulating {} universes of {}^3 cells of {:g} Mpc/h\n", missing.size(), o.box, o.cell);
  trainer::together(world, [&] {
    for (std::size_t i = static_cast<std::size_t>(world.rank()); i < missing.size();
         i += static_cast<std::size_t>(world.size())) {
      const auto index = static_cast<std::uint64_t>(missing[i]);
      universe::write_universe(folder / universe::file_name(index), false, fft, simulation,
                               universe::simulate(fft, simulation, index));
    }
  });
  transport.barrier();
  trainer::together(world, [&] { check_universes(o, world.rank(), world.size()); });
}

// Ranks split the samples as far as a batch has them, and the depth beyond.
GridExtents grid_for(std::int64_t batch, int ranks) {
  const int sample = static_cast<int>(std::gcd(batch, static_cast<std::int64_t>(ranks)));
  return {.sample = sample, .depth = ranks / sample};
}

// The file gets its name only when it is complete: a file of that name means that the training is done.
void write_predictions(const fs::path& path, const Predictions& p, std::int64_t cubes) {
  std::string text = "universe,cube";
  for (const auto* kind : {"predicted", "true"})
    for (const auto* name : universe::parameter_names) text += fmt::format(",{} {}", kind, name);
  text += '\n';
  for (std::size_t i = 0; i < p.samples.size(); ++i) {
    text += fmt::format("{},{}", p.samples[i] / cubes, p.samples[i] % cubes);
    for (const auto* values : {&p.predicted, &p.truth})
      for (std::size_t t = 0; t < 4; ++t) text += fmt::format(",{}", (*values)[4 * i + t]);
    text += '\n';
  }
  write_new_file(path, text, "study");
}

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

// Fits a ridge regression on the power spectra and one-point statistics of the cubes of the training.
void fit_regression(const Communicator& world, const StudyOptions& o, const data::SourcePtr& boxes, std::int64_t size) {
  std::optional<CubeSource> source;
  trainer::together(world, [&] { source.emplace(boxes, size); });
  const auto cubes = cubes_per_box(o, size);
  if (world.rank() == 0 && !o.quiet) fmt::print(stderr, "{}^3: regression on power spectra\n", size);
  Predictions of_training, predictions;
  of_training.samples = numbers(0, o.training * cubes), predictions.samples = numbers(o.training * cubes, o.test * cubes);
  const auto fitted = universe::fit_baseline(world, *source, of_training.samples, &of_training.predicted);
  auto found = universe::predict_baseline(world, *source, predictions.samples, fitted);
  trainer::together(world, [&] {
    require(found.missing.empty(), "[sample_size] there is no regression on cubes of {}^3: {}", size, found.missing);
    if (world.rank() != 0) return;
    predictions.predicted = std::move(found.values);
    const auto write = [&](const fs::path& file, Predictions& p) {
      for (const auto sample : p.samples) {
        const auto truth = source->targets(sample);
        p.truth.insert(p.truth.end(), truth.begin(), truth.end());
      }
      write_predictions(file, p, cubes);
    };
    const auto file = regression_of(o, size);
    std::error_code error;
    fs::create_directories(file.parent_path(), error);  // writing throws if this failed
    if (!of_training.predicted.empty()) write(training_predictions(file), of_training);
    write(file, predictions);
  });
}

int train_one(const Communicator& world, const StudyOptions& o, const data::SourcePtr& boxes, std::int64_t size,
              std::int64_t seed) {
  const auto cubes = cubes_per_box(o, size);
  trainer::Options t;
  t.out = (fs::path(o.out) / folder_of(size, seed)).string();
  t.training.fit.epochs = o.epochs, t.batch = cubes_per_step(o, size), t.optimizer_options.learning_rate = o.learning_rate,
  t.training.fit.clip_norm = 1;
  t.warm_up = std::min(1.0, static_cast<double>(o.epochs) / 8);
  t.seed = static_cast<std::uint64_t>(seed), t.resume = trainer::newest_in_out, t.training.checkpoint_every = 1;
  t.quiet = o.quiet, t.json = true;  // no tables of single trainings
  const auto extents = grid_for(t.batch, world.size());
  const trainer::Outputs out(world, t.out, {}, true);
  const auto grid = trainer::grid_of_ranks(world, t, extents);
  std::optional<data::Loader> train_set, test_set, still_set;  // still_set: training cubes, neither shuffled nor rotated
  std::unique_ptr<CosmoFlow> net;
  std::shared_ptr<const CubeSource> source;
  trainer::together(world, [&] {
    source = std::make_shared<CubeSource>(boxes, size);
    data::LoaderOptions options{.grid = grid, .batch = t.batch, .seed = t.seed};
    if (boxes->in_memory()) options.cache_bytes = 0;
    options.samples = numbers(o.training * cubes, o.test * cubes);
    test_set.emplace(source, options);
    options.samples = numbers(0, o.training * cubes);
    still_set.emplace(source, options);
    options.shuffle = options.flips = options.transpositions = options.drop_last = true;
    train_set.emplace(source, options);
    net = make_network(o.network, 4);
    trainer::build(*net, train_set->layout(), train_set->shape(), t);
  });
  if (world.rank() == 0 && !o.quiet)
    fmt::print(stderr, "{}^3, seed {}: {} cubes a step, {} steps, grid {}\n", size, seed, t.batch,
               o.epochs * optimizer_steps(*train_set, 1), trainer::to_string(extents));
  if (o.network == "pyramid") fit_last_layer(*net, *still_set);  // a checkpoint replaces it
  Predictions of_training, predictions;
  return trainer::run_training(world, t, extents, out,
                               {.program = "sample_size",
                                .net = *net,
                                .loader = *train_set,
                                .hooks = {.loss = mse,
                                          .evaluate =
                                              [&] {
                                                predictions = predict(*net, *test_set);
                                                RunningMean mean;
                                                for (std::size_t i = 0; i < predictions.predicted.size(); ++i)
                                                  mean.add(std::pow(predictions.predicted[i] - predictions.truth[i], 2));
                                                return std::vector{mean.mean()};
                                              },
                                          .text = [](const EpochRow& row) { return fmt::format("test {:.4f}", row.values[0]); }},
                                .notes = {{"size", std::to_string(size)}, {"seed", std::to_string(seed)}},
                                .decisive = {"size", "seed"},
                                .values = {"test_loss"},
                                .finish = [&] { of_training = predict(*net, *still_set); },
                                .report =
                                    [&](nlohmann::ordered_json run, const TrainerResult&, const std::string&) {
                                      trainer::write_text(out / trainer::summary_file, tool::to_text(run) + "\n");
                                      const auto file = predictions_of(o, size, seed);
                                      write_predictions(training_predictions(file), of_training, cubes);
                                      write_predictions(file, predictions, cubes);
                                    }});
}

}  // namespace

std::int64_t cubes_per_box(const StudyOptions& o, std::int64_t size) {
  const auto side = o.box / size;
  return side * side * side;
}

std::int64_t cubes_per_step(const StudyOptions& o, std::int64_t size) {
  return cubes_per_box(o, size) * std::min(o.universes_in_step, o.training);
}

int train_all(const Communicator& world, const StudyOptions& o) {
  std::optional<tool::FolderLock> lock;
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    std::error_code error;
    fs::create_directories(o.out, error);  // claim_folder throws if this failed
    if (fs::is_directory(o.out, error)) lock.emplace(o.out);
    claim_folder(o);
  });
  simulate_missing(world, o);
  data::SourcePtr boxes;
  trainer::together(world, [&] {
    boxes = kept_in_memory(std::make_shared<data::UniverseSource>(fs::path(o.out) / "universes"), o.training + o.test,
                           world.transport());
  });
  const auto is_there = [&](const fs::path& file) {
    bool done = false;
    trainer::together(world, [&] { done = fs::exists(file); });
    world.transport().barrier();
    return done;
  };
  for (const auto size : o.sizes)
    if (!is_there(regression_of(o, size))) fit_regression(world, o, boxes, size);
  // Seed by seed, so that an interrupted study already has results for all sizes.
  for (std::int64_t seed = 1; seed <= o.seeds; ++seed)
    for (const auto size : o.sizes) {
      if (is_there(predictions_of(o, size, seed))) continue;
      if (const int code = train_one(world, o, boxes, size, seed); code != 0) return code;
    }
  return 0;
}

std::vector<CubePrediction> read_predictions(const StudyOptions& o, std::int64_t size, const fs::path& path,
                                             std::int64_t universes) {
  std::ifstream file(path);
  require(file.good(), "[sample_size] {} cannot be read", path.string());
  std::vector<CubePrediction> list;
  std::string line;
  std::getline(file, line);
  for (std::int64_t number = 2; std::getline(file, line); ++number) {
    std::array<double, 10> values{};
    const char *at = line.data(), *const end = line.data() + line.size();
    for (std::size_t v = 0; v < values.size(); ++v) {
      const auto [next, error] = std::from_chars(at, end, values[v]);
      require(error == std::errc() && (v + 1 == values.size() ? next == end : next != end && *next == ','),
              "[sample_size] {} line {}: ten numbers are needed", path.string(), number);
      at = next + 1;
    }
    CubePrediction cube{.universe = static_cast<std::int64_t>(values[0])};
    std::copy_n(values.begin() + 2, 4, cube.predicted.begin()), std::copy_n(values.begin() + 6, 4, cube.truth.begin());
    list.push_back(cube);
  }
  const auto cubes = universes * cubes_per_box(o, size);
  require(static_cast<std::int64_t>(list.size()) == cubes, "[sample_size] {} has {} lines for {} cubes", path.string(),
          list.size(), cubes);
  return list;
}

}  // namespace mpigrad::sample_size
