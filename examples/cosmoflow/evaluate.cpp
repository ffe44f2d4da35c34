// What weights are worth on data that they have not seen: every volume is predicted once.

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>

#include "examples/cosmoflow/cosmoflow.h"
#include "framework/joined.h"

namespace mpigrad::cosmoflow {
namespace {

// How many of the volumes the weights were trained on, if these data are those of their training; else 0. Its notes tell.
std::int64_t trained_on(const CheckpointInfo& info, const data::Source& source) {
  const auto note = [&](const char* name) {
    const auto found = info.notes.find(name);
    return found == info.notes.end() ? std::string() : found->second;
  };
  const double fraction = std::strtod(note("test fraction").c_str(), nullptr);
  if (note("samples") != std::to_string(source.size()) || source.size() < 2 || !(fraction > 0 && fraction < 1)) return 0;
  const auto split = data::split_train_test(source.size(), fraction, std::strtoull(note("seed").c_str(), nullptr, 10));
  return fingerprint_of(source, split.test) == note("test samples") ? static_cast<std::int64_t>(split.train.size()) : 0;
}

}  // namespace

int evaluate(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const std::vector<std::string> files{predictions_file, picture_file, summary_file};
  const trainer::Outputs out(world, o.out, files, o.overwrite);

  std::shared_ptr<const data::UniverseSource> source;
  std::optional<data::Loader> loader;
  std::unique_ptr<CosmoFlow> net;
  trainer::together(world, [&] {
    source = std::make_shared<data::UniverseSource>(o.data);
    source->check(world.rank(), world.size());
    require_cubes(o, *source);
    loader.emplace(source, data::LoaderOptions{.grid = make_grid(world, extents),
                                               .batch = std::min(o.batch, source->size()),
                                               .dtype = trainer::dtype_of(o)});
    net = std::make_unique<CosmoFlow>(network_options(o, static_cast<std::int64_t>(source->target_names().size())));
    net->build(loader->shape(), {.seed = o.seed, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
  });
  trainer::require_same_data(world, *source);
  const auto info = trainer::load_weights(o.weights, world, *net);
  std::optional<TargetMeans> means;
  trainer::together(world, [&] { means = means_of(o.weights, info); });
  out.create(world);

  Results results;
  results.names = source->target_names();
  const auto seen = trained_on(info, *source);
  if (first && seen > 0)
    fmt::print(stderr, "warning: {} is what {} was trained on: {} of these {} volumes are no test\n", o.data, o.weights, seen,
               source->size());
  if (means && means->names != results.names) {
    if (first)
      fmt::print(stderr, "warning: {} was trained to predict {}; the targets of {} are called {}\n", o.weights,
                 joined(means->names, ", "), o.data, joined(results.names, ", "));
    means.reset();
  }
  if (first && !o.json)
    fmt::print("{} volumes of {}^3 x {} to evaluate\n{} parameters, grid {}\n", source->size(), source->extents()[0],
               source->channels(), net->parameters().elements(), trainer::to_string(extents));
  std::fflush(stdout);

  results.predictions = predict(*net, *loader);
  if (means) score(results, means->values, "the training set, as the weights' file says");
  else score(results, {}, "the samples evaluated");
  const auto usage = trainer::peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run{{"program", "cosmoflow"},
                               {"variant", o.variant},
                               {"batch_norm", o.batch_norm},
                               {"precision", trainer::precision_of(o)},
                               {"weights", o.weights},
                               {"grid", trainer::to_json(extents)},
                               {"ranks", world.size()},
                               {"side", source->extents()[0]},
                               {"test_samples", results.predictions.samples.size()},
                               {"trained_on_samples", seen},
                               {"parameters", net->parameters().elements()},
                               {"seconds", seconds}};
    trainer::add(run, usage);
    report(o, out, results, *source, std::move(run), files,
           fmt::format("{} in all; {}", format_duration(seconds), trainer::to_string(usage)));
  });
  return 0;
}

}  // namespace mpigrad::cosmoflow
