// The commands `evaluate` (scores weights on labelled volumes) and `predict` (segments other volumes).

#include <nlohmann/json.hpp>

#include <chrono>

#include "framework/base/new_file.h"
#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/infer.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

// A prediction's file has its image's name, and its format if that can be written.
std::string file_of(const data::Source& source, std::int64_t sample) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source);
  return folder != nullptr ? folder->label_file(sample) : data::label_file_name(fmt::format("sample_{:05}", sample));
}

void write(const std::filesystem::path& folder, const data::Source& source, const Segmented& s) {
  const auto* volumes = dynamic_cast<const data::VolumeFolder*>(&source);
  const auto geometry = volumes != nullptr ? volumes->header(s.sample) : data::plain_volume_header(source.extents_of(s.sample));
  const auto path = folder / file_of(source, s.sample);
  data::volume_format_of(path).write_labels(path, s.predicted, geometry, true);
}

constexpr const char* predictions_folder = "predictions";
constexpr SplitNotes split_notes{
    .samples = "samples", .fraction = "validation fraction", .seed = "validation seed", .kept = "validation"};

struct Loaded {
  CheckpointInfo info;
  Trained trained;
  std::unique_ptr<nn::Module> net;
  std::string averaged;  // averages_remark
};

// Collective.
Loaded load(const Communicator& world, const SegmentationProgram& program, const InferOptions& o) {
  Loaded result;
  of_input(world, [&] {
    const auto info = read_checkpoint_info(o.weights);
    result.trained = trained_of(program, o.weights, info);
    const auto geometry = stated_geometry(o.weights, info);
    result.trained.orientation = geometry.orientation;
    if (!result.trained.spacing) result.trained.least_spacing = geometry.least, result.trained.most_spacing = geometry.most;
    result.averaged = averages_remark(o, info);
    const auto& problem = result.trained.problem;
    result.net = program.network(problem);
    const auto& w = problem.extents;
    result.net->build(Shape{1, w[0], w[1], w[2], problem.channels}, {.seed = 0, .dtype = dtype_of(o), .compute = compute_of(o)});
  });
  result.info = load_weights(o.weights, world, *result.net, !o.last_weights);
  return result;
}

}  // namespace

// Both commands; `predict` reads no labels and writes the segmentation of every sample.
int infer(const Communicator& world, const SegmentationProgram& program, InferOptions o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0, scored = o.scored, writes = !scored || o.predictions;
  const auto extents = parse_grid(o.grid, world.size());
  check_grid(extents, world.size());
  std::vector<std::string> files;
  if (scored) files = {cases_file, picture_file(program), summary_file};
  const Outputs out(world, o.out, files, o.overwrite);
  of_input(world, [&] { take_stored_dtype(o); });
  const auto loaded = load(world, program, o);
  const auto& problem = loaded.trained.problem;
  const auto grid = make_grid(world, extents);

  const auto volumes = open(world, o.data, o.source, scored, loaded.trained);
  const auto folder = scored ? out / predictions_folder : out / "";
  of_input(world, [&] {
    require(volumes.seen->channels() == problem.channels, "[data] {} has {} channels, {} is of {}",
            volumes.stored->name_of_sample(0), volumes.seen->channels(), o.weights, problem.channels);
    const auto* images = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get());
    std::error_code error;
    require(images == nullptr || !std::filesystem::equivalent(images->image(0).parent_path(), folder, error),
            "[out] {} is the folder of the images, whose names segmentations get", folder.string());
  });
  require_same_data(world, *volumes.seen);
  // Volumes have been turned and resampled: the call says what is not known.
  require_same_geometry(world, o.weights, loaded.info, *volumes.stored, all_samples(*volumes.stored), true);
  warn_of_geometry(world, volumes, loaded.trained, false);
  LabelCount labels(problem.outputs, !loaded.trained.ignored.empty());
  auto reading = labels.reading(*volumes.stored, dtype_of(o));
  if (!scored) reading.cells = {};
  const auto part = part_of(world, o, loaded.info, *volumes.stored, split_notes, reading);
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
  const auto& w = problem.extents;
  if (first && !o.json)
    fmt::print("{} volumes of up to {}{}, windows of {} x {} x {}\n{} parameters{}, {} classes, grid {}\n", samples.size(),
               volumes.seen->extents(), part.kept ? ", which the training kept for validation" : "", w[0], w[1], w[2],
               loaded.net->parameters().elements(), loaded.averaged, problem.outputs, to_string(extents));
  std::fflush(stdout);
  write_onnx(world, o, *loaded.net, Shape{1, w[0], w[1], w[2], problem.channels});  // the file may be in the folder

  Results results;
  results.classes = problem.outputs;
  results.cases = segment(world, *loaded.net, volumes, problem, samples,
                          {.program = program.name,
                           .grid = grid,
                           .overlap = o.overlap,
                           .windows = o.windows,
                           .dtype = dtype_of(o),
                           .scored = scored,
                           .largest_component = o.largest_component,
                           .tolerance = o.tolerance,
                           .done = [&](const Segmented& s) {
                             if (writes) write(folder, *volumes.stored, s);
                             if (first && results.shown.size() < most_shown) results.shown.push_back(s);
                           }});
  const auto usage = peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run;
    run["program"] = program.name;
    run.update(summary_of(program, scored ? "evaluate" : "predict", problem));
    run.update({{"precision", precision_of(o)},
                {"weights", o.weights},
                {"averaged_weights", !loaded.averaged.empty()},
                {"grid", to_json(extents)},
                {"ranks", world.size()},
                {"samples", samples.size()},
                {"of_training_data", of_training},
                {"largest_component", o.largest_component},
                {"tolerance_mm", o.tolerance},
                {"parameters", loaded.net->parameters().elements()},
                {"seconds", seconds}});
    add(run, usage);
    auto text = fmt::format("{} in all; {}", format_duration(seconds), to_string(usage));
    if (writes) text += fmt::format("\n{} segmentations in {}", samples.size(), folder.string());
    if (scored) return report(program, o, out, results, volumes, std::move(run), files, text);
    if (o.json) return fmt::print("{}\n", tool::to_text(run));
    fmt::print("{}\n", text);
  });
  return 0;
}

}  // namespace mpigrad::trainer::segmenting
