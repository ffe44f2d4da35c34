// What weights are worth on a group of volumes: every one is classified once.

#include <nlohmann/json.hpp>

#include <chrono>

#include "comm/hdf5/hdf5_file.h"
#include "examples/classify/classify.h"

namespace mpigrad::classify {
namespace {

// Which classes there are the weights know; the data may lack some.
std::int64_t classes_of(const std::string& weights) {
  constexpr const char* last = "parameters/linear.bias";
  const Hdf5Reader file(weights);
  require(file.contains(last), "[classify] {} holds no weights of this program: it has no {}", weights, last);
  const auto shape = file.describe(last).shape;
  require(shape.rank() == 1 && shape[0] >= 2, "[classify] {} holds no classifier: {} is {}", weights, last, shape);
  return shape[0];
}

}  // namespace

int evaluate(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const std::vector<std::string> files{predictions_file, picture_file, summary_file};
  const trainer::Outputs out(world, o.out, files, o.overwrite);

  data::SourcePtr source;
  std::optional<data::Loader> loader;
  std::unique_ptr<Network> net;
  Results results;
  trainer::together(world, [&] {
    results.classes = classes_of(o.weights);
    source = open(o, o.validation_group);
    const auto counts = count_classes(*source);
    require(static_cast<std::int64_t>(counts.size()) <= results.classes, "[classify] {} has the classes 0 to {}, {} only {}",
            o.validation_group, counts.size() - 1, o.weights, results.classes);
    results.majority = majority_of(counts);
    loader.emplace(source, data::LoaderOptions{.grid = make_grid(world, extents),
                                               .batch = std::min(o.batch, source->size()),
                                               .dtype = trainer::dtype_of(o)});
    net = std::make_unique<Network>(network_options(o, results.classes));
    net->build(loader->shape(), {.seed = o.seed, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
  });
  trainer::require_same_data(world, *source);
  trainer::load_weights(o.weights, world, *net);
  out.create(world);
  if (first && !o.json)
    fmt::print("{} volumes of {} in {}, {} classes; always the most frequent one is right in {:.1f} %\n{} parameters, grid {}\n",
               source->size(), source->extents(), o.validation_group, results.classes, 100 * results.majority,
               net->parameters().elements(), trainer::to_string(extents));
  std::fflush(stdout);

  evaluate(*net, *loader, results);
  const auto usage = trainer::peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run{{"program", "classify"},      {"precision", trainer::precision_of(o)},
                               {"weights", o.weights},       {"grid", trainer::to_json(extents)},
                               {"ranks", world.size()},      {"validation_samples", source->size()},
                               {"classes", results.classes}, {"parameters", net->parameters().elements()},
                               {"seconds", seconds}};
    trainer::add(run, usage);
    report(o, out, results, *source, std::move(run), files,
           fmt::format("{} in all; {}", format_duration(seconds), trainer::to_string(usage)));
  });
  return 0;
}

}  // namespace mpigrad::classify
