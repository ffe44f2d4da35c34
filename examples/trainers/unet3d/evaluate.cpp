// What weights are worth on labelled volumes, and what they make of others.

#include <nlohmann/json.hpp>

#include <chrono>

#include "examples/trainers/unet3d/unet3d.h"
#include "framework/base/new_file.h"
#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/infer.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"

namespace mpigrad::unet {
namespace {

// A prediction's file has its image's name, and its format if that is written.
std::string file_of(const data::Source& source, std::int64_t sample) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source);
  return data::label_file_name(folder != nullptr ? folder->image(sample)
                                                 : std::filesystem::path(fmt::format("sample_{:05}", sample)));
}

void write(const std::filesystem::path& folder, const data::Source& source, const Segmented& s) {
  const auto* volumes = dynamic_cast<const data::VolumeFolder*>(&source);
  const auto geometry = volumes != nullptr ? volumes->header(s.sample) : data::plain_volume_header(source.extents_of(s.sample));
  const auto path = folder / file_of(source, s.sample);
  data::volume_format_of(path).write_labels(path, s.predicted, geometry, true);
}

constexpr const char* predictions_folder = "predictions";
constexpr trainer::SplitNotes split_notes{
    .samples = "samples", .fraction = "validation fraction", .seed = "validation seed", .kept = "validation"};

}  // namespace

Loaded load(const Communicator& world, const InferOptions& o) {
  Loaded result;
  trainer::together(world, [&] {
    const auto info = read_checkpoint_info(o.weights);
    result.recipe = recipe_of(o.weights, info);
    result.averaged = trainer::averages_remark(o, info);
    result.net = std::make_unique<UNet3d>(network_options(result.recipe, 0.9, false));
    const auto& w = result.recipe.window;
    result.net->build(Shape{1, w[0], w[1], w[2], result.recipe.channels},
                      {.seed = 0, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
  });
  result.info = trainer::load_weights(o.weights, world, *result.net, !o.last_weights);
  return result;
}

namespace {

// Both commands; `predict` has no labels and writes every sample's.
int infer(const Communicator& world, InferOptions o, bool scored) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0, writes = !scored || o.predictions;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  std::vector<std::string> files;
  if (scored) files = {cases_file, picture_file, summary_file};
  const trainer::Outputs out(world, o.out, files, o.overwrite);
  trainer::together(world, [&] { trainer::take_stored_dtype(o); });
  auto loaded = load(world, o);
  const auto grid = make_grid(world, extents);

  const auto volumes = open(world, scored ? o.data : o.images, o.labels, o.source, scored, loaded.recipe);
  const auto folder = scored ? out / predictions_folder : out / "";
  of_input(world, [&] {
    require(volumes.seen->channels() == loaded.recipe.channels, "[data] {} has {} channels, {} is of {}",
            volumes.stored->name_of_sample(0), volumes.seen->channels(), o.weights, loaded.recipe.channels);
    const auto* images = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get());
    std::error_code error;
    require(images == nullptr || !std::filesystem::equivalent(images->image(0).parent_path(), folder, error),
            "[out] {} is the folder of the images, whose names segmentations get", folder.string());
  });
  trainer::require_same_data(world, *volumes.seen);
  o.scored = scored;
  trainer::require_same_geometry(world, o.weights, loaded.info, *volumes.stored, trainer::all_samples(*volumes.stored),
                                 loaded.recipe.spacing.has_value());
  LabelCount labels(loaded.recipe.classes);
  auto reading = labels.reading(*volumes.stored, trainer::dtype_of(o));
  if (!scored) reading.cells = {};
  const auto part = trainer::part_of(world, o, loaded.info, *volumes.stored, split_notes, reading);
  const auto& samples = part.samples;
  const bool of_training = part.kept || part.trained_on > 0;
  trainer::together(world, [&] {
    if (writes && first && !o.overwrite)
      for (const auto sample : samples)
        require(!is_name_taken(folder / file_of(*volumes.stored, sample)), "[out] {} exists; --overwrite replaces it",
                (folder / file_of(*volumes.stored, sample)).string());
  });
  out.create(world);
  trainer::together(world, [&] {
    if (first && writes) std::filesystem::create_directories(folder);
    if (first && part.trained_on > 0)
      fmt::print(stderr, "warning: {} is what {} was trained on: most of it is no test\n", o.data, o.weights);
  });
  const auto& w = loaded.recipe.window;
  if (first && !o.json)
    fmt::print("{} volumes of up to {}{}, windows of {} x {} x {}\n{} parameters{}, {} classes, grid {}\n", samples.size(),
               volumes.seen->extents(), part.kept ? ", which the training kept for validation" : "", w[0], w[1], w[2],
               loaded.net->parameters().elements(), loaded.averaged, loaded.recipe.classes, trainer::to_string(extents));
  std::fflush(stdout);
  trainer::write_onnx(world, o, *loaded.net, Shape{1, w[0], w[1], w[2], loaded.recipe.channels});  // perhaps into the folder

  Results results;
  results.classes = loaded.recipe.classes;
  results.cases = segment(world, *loaded.net, volumes, loaded.recipe, samples,
                          {.grid = grid,
                           .overlap = o.overlap,
                           .windows = o.windows,
                           .dtype = trainer::dtype_of(o),
                           .scored = scored,
                           .largest_component = o.largest_component,
                           .done = [&](const Segmented& s) {
                             if (writes) write(folder, *volumes.stored, s);
                             if (first && results.shown.size() < most_shown) results.shown.push_back(s);
                           }});
  const auto usage = trainer::peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run{{"program", "unet3d"},
                               {"variant", loaded.recipe.variant},
                               {"filters", loaded.recipe.filters},
                               {"precision", trainer::precision_of(o)},
                               {"weights", o.weights},
                               {"averaged_weights", !loaded.averaged.empty()},
                               {"grid", trainer::to_json(extents)},
                               {"ranks", world.size()},
                               {"samples", samples.size()},
                               {"of_training_data", of_training},
                               {"largest_component", o.largest_component},
                               {"parameters", loaded.net->parameters().elements()},
                               {"seconds", seconds}};
    trainer::add(run, usage);
    auto text = fmt::format("{} in all; {}", format_duration(seconds), trainer::to_string(usage));
    if (writes) text += fmt::format("\n{} segmentations in {}", samples.size(), folder.string());
    if (scored) return report(o, out, results, volumes, std::move(run), files, text);
    if (o.json) return fmt::print("{}\n", tool::to_text(run));
    fmt::print("{}\n", text);
  });
  return 0;
}

}  // namespace

int evaluate(const Communicator& world, const InferOptions& o) { return infer(world, o, true); }
int predict(const Communicator& world, const InferOptions& o) { return infer(world, o, false); }

}  // namespace mpigrad::unet
