// The commands `evaluate` (scores weights on labelled volumes) and `predict` (segments other volumes).

#include <nlohmann/json.hpp>

#include <algorithm>
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
  CheckpointInfo info{};
  Trained trained{};
  std::unique_ptr<nn::Module> net{};
  std::string averaged{};  // averages_remark
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

// Throws unless the weights of both files segment the same volumes into the same classes.
void require_alike(const std::string& first, const Trained& a, const std::string& file, const Trained& b) {
  const auto same = [&](const char* what, bool equal) {
    require(equal, "[ensemble] {} and {} do not have the same {}", first, file, what);
  };
  same("classes", a.problem.outputs == b.problem.outputs && a.label_map == b.label_map && a.ignored == b.ignored);
  same("regions", a.regions == b.regions && a.label_classes == b.label_classes);
  same("channels", a.problem.channels == b.problem.channels && a.channel_files == b.channel_files);
  same("window", a.problem.extents == b.problem.extents);
  same("normalisation", a.normalisation == b.normalisation && a.intensities == b.intensities);
  same("interpolation", a.interpolation == b.interpolation);
  same("orientation", a.orientation == b.orientation);
  same("spacing", a.spacing == b.spacing && a.least_spacing == b.least_spacing && a.most_spacing == b.most_spacing);
}

// The networks of network.weights and network.ensemble. Collective.
std::vector<Loaded> load_all(const Communicator& world, const SegmentationProgram& program, InferOptions& o) {
  std::vector<Loaded> all;
  auto paths = o.ensemble;
  paths.insert(paths.begin(), o.weights);
  for (const auto& path : paths) {
    auto own = o;
    own.weights = path;
    of_input(world, [&] {
      take_stored_dtype(own);
      require(all.empty() || own.dtype == o.dtype, "[ensemble] {} is of {}, {} of {}", paths.front(), o.dtype, path, own.dtype);
    });
    if (all.empty()) o.dtype = own.dtype;
    all.push_back(load(world, program, own));
    of_input(world, [&] { require_alike(paths.front(), all.front().trained, path, all.back().trained); });
  }
  return all;
}

// Volumes, and the networks that segment them.
struct Job {
  std::vector<std::int64_t> samples;
  segmentation::Ensemble nets;
};
struct Jobs {
  std::vector<Job> list;
  bool kept = false;            // the volumes that the training kept
  std::int64_t trained_on = 0;  // volumes that a network has learned from
};

// All networks for the volumes of data.part; for `folds` each network for the volumes that its training has kept. Collective.
Jobs jobs_of(const Communicator& world, const InferOptions& o, const std::vector<Loaded>& all, const data::Source& source,
             const data::ContentsOptions& reading) {
  Job job;
  for (const auto& each : all) job.nets.push_back(each.net.get());
  if (o.part != "folds") {
    auto part = part_of(world, o, all.front().info, source, split_notes, reading);
    const auto note = [](const Loaded& from, const char* name) {
      const auto found = from.info.notes.find(name);
      return found == from.info.notes.end() ? std::string() : found->second;
    };
    of_input(world, [&] {
      for (std::size_t i = 1; i < all.size(); ++i)
        for (const char* name : {split_notes.samples, split_notes.fraction, split_notes.seed, split_notes.kept})
          require(!part.kept || note(all[i], name) == note(all.front(), name),
                  "[ensemble] {} has learned from volumes that {} has kept for validation: data.part=folds scores each volume by "
                  "the network that has not seen it, data.part=all by all networks",
                  o.ensemble[i - 1], o.weights);
    });
    job.samples = std::move(part.samples);
    return {.list = {std::move(job)}, .kept = part.kept, .trained_on = part.trained_on};
  }
  Jobs jobs{.list = {}, .kept = true};
  std::vector<std::string> network_of(static_cast<std::size_t>(source.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto own = o;
    own.weights = i == 0 ? o.weights : o.ensemble[i - 1], own.part = "validation";
    auto part = part_of(world, own, all[i].info, source, split_notes, reading);
    of_input(world, [&] {
      for (const auto sample : part.samples) {
        auto& network = network_of[static_cast<std::size_t>(sample)];
        require(network.empty(), "[folds] {} is kept by {} and by {}", source.name_of_sample(sample), network, own.weights);
        network = own.weights;
      }
    });
    jobs.list.push_back({.samples = std::move(part.samples), .nets = {job.nets[i]}});
  }
  of_input(world, [&] {
    for (std::int64_t sample = 0; sample < source.size(); ++sample)
      require(!network_of[static_cast<std::size_t>(sample)].empty(),
              "[folds] {} is kept by none of the {} weights: the weights of all folds are needed", source.name_of_sample(sample),
              all.size());
  });
  return jobs;
}

std::vector<int> axes_of(const std::vector<std::string>& names) {
  std::vector<int> axes;
  for (const auto& name : names) {
    const int axis = name == "depth" ? 0 : name == "height" ? 1 : 2;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      throw UsageError(fmt::format("predict.mirror has {} twice", name));
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace

// Both commands; `predict` reads no labels and writes the segmentation of every sample.
int infer(const Communicator& world, const SegmentationProgram& program, InferOptions o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0, scored = o.scored, writes = !scored || o.predictions;
  const auto extents = parse_grid(o.grid, world.size());
  check_grid(extents, world.size());
  std::vector<std::string> files;
  if (scored) files = {cases_file, picture_file(program), report_file, postprocessing_file, summary_file};
  SegmentOptions segmenting{.overlap = o.overlap,
                            .windows = o.windows,
                            .mirrored = axes_of(o.mirror),
                            .sums = o.scores == "16-bit" ? DType::uint16 : DType::float32,
                            .scored = scored,
                            .tolerance = o.tolerance};
  const Outputs out(world, o.out, files, o.overwrite);
  const auto all = load_all(world, program, o);
  const auto& trained = all.front().trained;
  const auto& problem = trained.problem;
  segmenting.targets = trained.regions;
  segmenting.regions = scored_regions(o.regions, trained.classes(), trained.regions);
  const auto classes = scored_classes(problem, segmenting.targets);
  of_input(world, [&] {
    if (!o.postprocessing.empty()) segmenting.largest = read_postprocessing(o.postprocessing, classes, segmenting.targets);
    for (std::int64_t c = 1; o.largest_component && c < classes; ++c) segmenting.largest.push_back(c);
  });
  segmenting.grid = make_grid(world, extents), segmenting.dtype = dtype_of(o);

  const auto volumes = open(world, o.data, o.source, scored, trained);
  const auto folder = scored ? out / predictions_folder : out / "";
  of_input(world, [&] {
    require(volumes.seen->channels() == problem.channels, "[data] {} has {} channels, {} is of {}",
            volumes.stored->name_of_sample(0), volumes.seen->channels(), o.weights, problem.channels);
    const auto* images = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get());
    std::error_code error;
    require(images == nullptr || !std::filesystem::equivalent(images->image(0).parent_path(), folder, error),
            "[out] {} is the folder of the images, whose names segmentations get", folder.string());
  });
  const auto memory = require_memory(world, program, volumes, problem, segmenting, o.memory);
  require_same_data(world, *volumes.seen);
  // Volumes have been turned and resampled: the call says what is not known.
  require_same_geometry(world, o.weights, all.front().info, *volumes.stored, all_samples(*volumes.stored), true);
  warn_of_geometry(world, volumes, trained, false);
  LabelCount labels(trained.classes(), !trained.ignored.empty());
  auto reading = labels.reading(*volumes.stored, dtype_of(o));
  if (!scored) reading.cells = {};
  const auto jobs = jobs_of(world, o, all, *volumes.stored, reading);
  std::size_t count = 0;
  for (const auto& job : jobs.list) count += job.samples.size();
  const bool of_training = jobs.kept || jobs.trained_on > 0;
  trainer::together(world, [&] {
    if (writes && first && !o.overwrite)
      for (const auto& job : jobs.list)
        for (const auto sample : job.samples)
          require(!is_name_taken(folder / file_of(*volumes.stored, sample)), "[out] {} exists; --overwrite replaces it",
                  (folder / file_of(*volumes.stored, sample)).string());
  });
  out.create(world);
  trainer::together(world, [&] {
    if (first && writes) std::filesystem::create_directories(folder);
    if (first && jobs.trained_on > 0)
      fmt::print(stderr, "warning: {} is what {} was trained on: most of it is no test\n", o.data, o.weights);
  });
  const auto& w = problem.extents;
  auto& net = *all.front().net;
  if (first && !o.json) {
    fmt::print("{} volumes of up to {}{}, windows of {} x {} x {}\n{} parameters{}, {} {}, grid {}\n", count,
               volumes.seen->extents(), jobs.kept ? ", which the training kept for validation" : "", w[0], w[1], w[2],
               net.parameters().elements(), all.front().averaged, problem.outputs,
               trained.regions.empty() ? "classes" : "regions", to_string(extents));
    if (all.size() > 1)
      fmt::print("{} networks{}\n", all.size(), o.part == "folds" ? ", each for the volumes of its fold" : ": the mean of them");
    fmt::print("{}\n", memory);
  }
  std::fflush(stdout);
  write_onnx(world, o, net, Shape{1, w[0], w[1], w[2], problem.channels});  // the file may be in the folder

  Results results;
  results.classes = classes, results.targets = segmenting.targets, results.regions = segmenting.regions;
  segmenting.done = [&](const Segmented& s, double dice) {
    if (writes) write(folder, *volumes.stored, s);
    if (scored) results.shown.push_back(slice_of(s, stored_extents(volumes, s.sample), dice));
  };
  for (const auto& job : jobs.list)
    for (auto& each : segment(world, job.nets, volumes, problem, job.samples, segmenting))
      results.cases.push_back(std::move(each));
  std::sort(results.cases.begin(), results.cases.end(), [](const Case& a, const Case& b) { return a.sample < b.sample; });
  results.shown = worst_of(world, std::move(results.shown));
  const auto usage = peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run;
    run["program"] = program.name;
    run.update(summary_of(program, scored ? "evaluate" : "predict", problem));
    run.update({{"precision", precision_of(o)},
                {"weights", o.weights},
                {"ensemble", o.ensemble},
                {"averaged_weights", !all.front().averaged.empty()},
                {"grid", to_json(extents)},
                {"ranks", world.size()},
                {"samples", count},
                {"of_training_data", of_training},
                {"mirror", o.mirror},
                {"scores", o.scores},
                {"largest_component", segmenting.largest},
                {"tolerance_mm", o.tolerance},
                {"parameters", net.parameters().elements()},
                {"seconds", seconds}});
    add(run, usage);
    auto text = fmt::format("{} in all; {}", format_duration(seconds), to_string(usage));
    if (writes) text += fmt::format("\n{} segmentations in {}", count, folder.string());
    if (scored) return report(program, o, out, results, volumes, std::move(run), files, text);
    if (o.json) return fmt::print("{}\n", tool::to_text(run));
    fmt::print("{}\n", text);
  });
  return 0;
}

}  // namespace mpigrad::trainer::segmenting
