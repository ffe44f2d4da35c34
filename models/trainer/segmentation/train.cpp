// The commands `train` and `train --describe`.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "framework/base/joined.h"
#include "models/data/volumes/volumes.h"
#include "models/losses/deep_supervision.h"
#include "models/losses/segmentation.h"
#include "models/nn/whole_copy.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "models/trainer/segmentation/dataset.h"
#include "models/trainer/segmentation/parts.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/views/views.h"

namespace mpigrad::trainer {

std::vector<SegmentationLoss> segmentation_losses() {
  constexpr std::int64_t ignored = data::ignored_label;
  const segmentation::TverskyOptions uneven{.false_positives = 0.3, .false_negatives = 0.7};
  using segmentation::OverlapOptions;
  const auto dice_ce = [](const OverlapOptions& o) { return LossFunction(segmentation::dice_cross_entropy_loss, o); };
  const auto dice = [](const OverlapOptions& o) { return LossFunction(segmentation::soft_dice_loss, o); };
  const auto tversky = [uneven](const OverlapOptions& o) {
    auto options = uneven;
    options.overlap = o;
    return LossFunction(segmentation::tversky_loss, options);
  };
  return {{"dice-ce", dice_ce({}), dice_ce({.ignored = ignored}), dice_ce},
          {"dice", dice({}), dice({.ignored = ignored}), dice},
          {"cross-entropy", cross_entropy, {cross_entropy, {.ignore_index = ignored}}},
          {"focal", segmentation::focal_loss, {segmentation::focal_loss, {.ignored = ignored}}},
          {"tversky", tversky({}), tversky({.ignored = ignored}), tversky}};
}

namespace segmenting {
namespace {

std::vector<std::string> lines_of(const Values& values) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : values)
    std::visit(
        [&, &key = name](const auto& x) {
          if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<std::int64_t>>)
            lines.push_back(fmt::format("{}: {}", key, joined(x, " ")));
          else lines.push_back(fmt::format("{}: {}", key, x));
        },
        value);
  return lines;
}

// Takes the number of classes and the ignored labels from dataset.json, where keys do not give them. Rank 0 prints what else the
// file says that the volumes do not.
void take_dataset_file(const Communicator& world, const TrainOptions& o, Trained& trained, DatasetFile& file) {
  of_input(world, [&] { file = read_dataset_file(o.data); });
  if (file.path.empty()) return;
  if (trained.ignored.empty() && !o.given.contains("labels.ignore")) trained.ignored = file.ignored;
  if (trained.problem.outputs == 0 && trained.label_map.empty() && file.classes > 1) trained.problem.outputs = file.classes;
  if (file.regions.empty() || !trained.regions.empty()) return;
  if (trained.label_map.empty()) of_input(world, [&] { trained.regions = regions_of(file.regions, file.region_order); });
  else if (world.rank() == 0)
    fmt::print(stderr, "warning: {}: with labels.map regions ({}) are no targets, unless labels.regions gives them\n",
               file.path.string(), joined(file.regions, ", "));
}

std::string text_of_loss(const TrainOptions& o, const Trained& trained) {
  const std::string over = o.batch_dice ? ", overlap over the batch" : "";
  if (!trained.regions.empty()) return "Dice and binary cross-entropy of regions" + over;
  return o.loss + over + (o.background ? "" : ", without background");
}

// Warns where dataset.json and the folders differ.
void compare(const Communicator& world, const DatasetFile& file, const data::Source& source) {
  if (world.rank() != 0 || file.path.empty()) return;
  if (file.images > 0 && file.images != source.size())
    fmt::print(stderr, "warning: {} says {} volumes, there are {}\n", file.path.string(), file.images, source.size());
  if (file.channels > 0 && file.channels != source.channels())
    fmt::print(stderr, "warning: {} says {} channels, the volumes have {}\n", file.path.string(), file.channels,
               source.channels());
}

Notes notes_of(const SegmentationProgram& program, const TrainOptions& o, const data::Source& source, const Trained& trained,
               const std::vector<std::int64_t>& validation) {
  Notes notes{
      {"program", program.name},
      {"optimizer", o.optimizer},
      {"samples", std::to_string(source.size())},
      {"validation fraction", to_note(o.division)},
      {"validation seed", std::to_string(o.division.seed)},
      {"validation", fingerprint(source, validation)},
      {"seed", std::to_string(o.seed)},
      {"loss", text_of_loss(o, trained)},
      {"augmentation", fmt::format("foreground {}{}{}", o.foreground, o.augment.empty() ? "" : ", " + o.augment,
                                   o.windows == 1 ? "" : fmt::format(", {} windows of each volume in an epoch", o.windows))},
      {"batch", std::to_string(o.batch)},
      {"precision", precision_of(o)}};
  require(notes.emplace(program.name, to_note(program, trained)).second, "[trainer] a program cannot be called '{}'",
          program.name);
  return notes;
}

}  // namespace

LossFunction loss_of(const SegmentationProgram& program, const TrainOptions& o, const Trained& trained) {
  const auto& all = program.losses;
  const bool ignores = !trained.ignored.empty();
  if (o.batch_dice && o.training.fit.accumulate > 1)
    throw UsageError("loss.batch_dice is one overlap over a whole batch, which schedule.accumulate divides: use one of them");
  if (!trained.regions.empty()) {
    if (o.loss != all.front().name)
      throw UsageError(fmt::format(
          "loss.name={} is a loss of classes; the targets are regions, whose loss is Dice with binary cross-entropy", o.loss));
    segmentation::RegionOptions options{.regions = labels_of(trained.regions),
                                        .classes = std::max(trained.label_classes, classes_of(trained.regions)),
                                        .overlap = {.whole_batch = o.batch_dice}};
    if (ignores) options.overlap.ignored = data::ignored_label;
    return {segmentation::region_loss, options};
  }
  const auto& found = *std::find_if(all.begin(), all.end(), [&](const SegmentationLoss& each) { return each.name == o.loss; });
  if (ignores && !found.ignoring) throw UsageError(fmt::format("labels.ignore: the loss {} cannot leave cells out", o.loss));
  if (!o.batch_dice && o.background) return ignores ? found.ignoring : found.loss;
  if (!found.of_overlap)
    throw UsageError(fmt::format("loss.batch_dice and loss.background are of losses with an overlap, not of {}", o.loss));
  segmentation::OverlapOptions overlap{.background = o.background, .whole_batch = o.batch_dice};
  if (ignores) overlap.ignored = data::ignored_label;
  return found.of_overlap(overlap);
}

LossFunction supervised(nn::Module& net, const LossFunction& loss) {
  auto* deep = dynamic_cast<DeeplySupervised*>(&net);
  if (deep == nullptr) return loss;
  return [deep, loss](const Tensor& scores, const Tensor& labels) {
    return deep_supervision_loss(loss, scores, deep->take_coarse_scores(), labels);
  };
}

Description step_of(const SegmentationProgram& program, const TrainOptions& o, const Problem& problem, const GridExtents& grid) {
  const auto net = program.network(problem);
  auto trained = o.trained;
  trained.ignored.clear();
  const auto loss = supervised(*net, loss_of(program, o, trained));
  const auto objective = [&](const Tensor& x) {
    Tensor labels;
    {
      Untaped scope;
      labels = constant(cast(squeeze(slice(x, 4, 0, 1), {4}), DType::int32));
    }
    return loss(cast((*net)(x), net->dtype()), labels);
  };
  const auto& w = problem.extents;
  // In a pipeline the input and the labels are on different stages.
  return trainer::describe(o, *net, {described_batch(o, grid), w[0], w[1], w[2], problem.channels}, grid,
                           grid.stage > 1 ? std::function<Tensor(const Tensor&)>{} : objective);
}

int describe(const Communicator& world, const SegmentationProgram& program, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = parse_grid(o.grid, 1, Channels::split);
    auto problem = o.trained.problem;
    if (!o.trained.regions.empty()) problem.outputs = static_cast<std::int64_t>(o.trained.regions.size());
    if (problem.outputs == 0) problem.outputs = 3;
    nlohmann::ordered_json more;
    more["program"] = program.name;
    more.update(summary_of(program, "describe", problem));
    trainer::print(step_of(program, o, problem, grid), o, more);
  });
  return 0;
}

int train(const Communicator& world, const SegmentationProgram& program, const TrainOptions& o) {
  const auto extents = parse_grid(o.grid, world.size(), Channels::split);
  check_grid(extents, world.size());
  const auto files = training_files(o, {cases_file, picture_file(program), report_file, postprocessing_file});
  const Outputs out(world, o.out, protected_files(o, files), replaces(o));
  auto trained = o.trained;
  auto& problem = trained.problem;

  const auto grid = grid_of_ranks(world, o, extents);
  DatasetFile dataset;
  take_dataset_file(world, o, trained, dataset);
  const bool ignores = !trained.ignored.empty();
  auto loss = loss_of(program, o, trained);
  const auto volumes = open(world, o.data, o.source, true, trained);
  data::Split split;
  of_input(world, [&] {
    require(volumes.seen->size() >= 2, "[data] {} holds one volume; training and validation need one each", o.data);
    split = trainer::split(volumes.seen->size(), o.division);
    require_batch(o, static_cast<std::int64_t>(split.train.size()));
  });
  require_same_data(world, *volumes.seen);
  problem.channels = volumes.seen->channels();
  compare(world, dataset, *volumes.seen);
  if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get()))
    trained.channel_files = folder->channel_files();
  const auto geometry = geometry_of(world, *volumes.stored, all_samples(*volumes.stored), trained.spacing.has_value());
  warn_of_geometry(world, volumes, trained, true);
  warn_of_reading(world, volumes, split.train, o);
  const auto& regions = trained.regions;
  // For validation each group of ranks segments its own volumes.
  auto segments_on = grid;
  if (has_blocks(o))
    segments_on = make_grid(extents.stage > 1 ? world : grid->world(),
                            {.sample = extents.sample,
                             .depth = extents.depth * extents.channel * extents.filter * extents.stage,
                             .height = extents.height,
                             .width = extents.width});
  SegmentOptions segmenting{.grid = segments_on, .overlap = o.overlap, .dtype = dtype_of(o), .final = false, .targets = regions};
  const auto fits = [&] { (void)require_memory(world, program, volumes, problem, segmenting, 0); };
  // Refused before volumes are read, if all ranks know the number of classes; else after that.
  double unknown = problem.outputs > 0 && regions.empty() ? 0 : 1;
  world.transport().allreduce(&unknown, &unknown, 1, DType::float64, CombineOp::max);
  if (unknown == 0) fits();
  LabelCount labels(problem.outputs, ignores, classes_of(regions));
  auto reading = labels.reading(*volumes.stored, dtype_of(o));
  ValueSummary values_read(*volumes.stored);
  reading.values = [&](std::int64_t sample, const Box& box, const std::byte* values) { values_read.add(sample, box, values); };
  auto contents = read_data(world, *volumes.stored, split.train, reading);
  const auto kept = read_data(world, *volumes.stored, split.test, reading);
  problem.outputs = trained.label_classes = labels.classes(world, o.data);
  if (!regions.empty()) {
    problem.outputs = static_cast<std::int64_t>(regions.size());
    loss = loss_of(program, o, trained);  // now that the number of classes is known
    for (std::size_t r = 0; r < regions.size() && world.rank() == 0 && !o.json; ++r)
      fmt::print("region {} is {}, written as class {}\n", r + 1, text_of(regions[r]), regions[r].written);
  }
  const auto scored = scored_classes(problem, regions);
  for (const auto& remark : values_read.remarks(world, split.test))
    if (world.rank() == 0) fmt::print(stderr, "warning: {}\n", remark);
  std::optional<data::Loader> loader;
  std::unique_ptr<nn::Module> net;
  of_input(world, [&] {
    data::LoaderOptions options{.grid = grid, .batch = o.batch / o.training.fit.accumulate, .seed = o.seed, .dtype = dtype_of(o)};
    options.shuffle = true, options.flips = o.flips, options.samples = split.train, options.drop_last = true;
    options.passes = o.windows;
    options.crop = data::Crop{.extents = problem.extents, .foreground = o.foreground};
    set_reading(options, *volumes.seen, o);
    if (!o.augment.empty()) options.augment = augment::parse_recipe(o.augment, {});
    loader.emplace(volumes.seen, options);
    net = program.network(problem);
    build(*net, loader->layout(), loader->shape(), o);
  });

  auto notes = notes_of(program, o, *volumes.seen, trained, split.test);
  add_contents(notes, o.data, contents, &kept);
  contents += kept;
  notes[geometry_note] = to_note(geometry);
  Results results;
  results.classes = scored, results.targets = regions;
  std::unique_ptr<nn::Module> whole;  // the validation needs all weights
  if (has_blocks(o)) {
    whole = program.network(problem);
    const nn::BuildOptions build{.seed = o.seed, .dtype = dtype_of(o), .compute = compute_of(o)};
    whole->build(loader->shape(), build);
  }
  if (unknown != 0) fits();
  std::vector<std::string> values{"validation_loss"};
  for (std::int64_t c = 1; c < scored; ++c) values.push_back(fmt::format("dice_{}", c));
  const auto evaluate = [&] {
    if (whole) nn::copy_whole(*net, *whole);
    results.cases = segment(world, {whole ? whole.get() : net.get()}, volumes, problem, split.test, segmenting);
    std::vector<double> row{1 - mean_dice(results.cases, scored)};
    for (std::size_t c = 1; c < static_cast<std::size_t>(scored); ++c)
      row.push_back(mean_of(results.cases, &Case::dice, c).value);
    return row;
  };
  const auto finish = [&] {
    segmenting.final = true;
    segmenting.done = [&](const Segmented& s, double dice) {
      results.shown.push_back(slice_of(s, stored_extents(volumes, s.sample), dice));
    };
    (void)evaluate();
    results.shown = worst_of(world, std::move(results.shown));
  };
  const auto text = [](const EpochRow& row) {
    std::string line = "Dice";
    for (std::size_t c = 1; c < row.values.size(); ++c) line += fmt::format(" {:.3f}", row.values[c]);
    return line;
  };
  const auto& w = problem.extents;
  return run_training(
      world, o, extents, out,
      {.program = program.name,
       .net = *net,
       .loader = *loader,
       .hooks = {.loss = supervised(*net, loss), .evaluate = evaluate, .text = text},
       .notes = notes,
       .decisive = {"program", "optimizer", "validation fraction", "validation seed", program.name},
       .headline = fmt::format(
           "{} volumes of up to {} x {} with {} {} for training, {} for validation; windows of {} x {} x {}; {}",
           split.train.size(), volumes.seen->extents(), problem.channels, problem.outputs,
           regions.empty() ? "classes" : "regions", split.test.size(), w[0], w[1], w[2], contents.remark() + geometry.remark()),
       .values = values,
       .explained =
           [&] {
             return std::vector<Explained>{
                 {"validation",
                  {fmt::format("volumes {}; windows overlap by {} of their extent", joined(split.test, " "), o.overlap),
                   fmt::format("weights of {} bits", o.half_weights ? 16 : 32)}},
                 {"volumes",
                  {"orientation " + o.orientation,
                   "classes of labels: " + (trained.label_map.empty() ? "their own" : joined(trained.label_map, ", ")),
                   "ignored labels: " + (ignores ? joined(trained.ignored, ", ") : "none"),
                   fmt::format("normalisation {} {}", trained.normalisation, joined(trained.intensities, " "))}},
                 {"settings of the network", lines_of(problem.values)}};
           },
       .evaluated_samples = static_cast<std::int64_t>(split.test.size()),
       .accuracy = [](const std::vector<double>& row) { return 1 - row[0]; },  // the mean Dice score
       .finish = finish,
       .half_weights = o.half_weights,
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& last) {
             for (const auto& row : result.epochs)
               results.epochs.push_back(
                   {row.report.epoch, row.report.loss, row.values[0], {row.values.begin() + 1, row.values.end()}});
             run.update(summary_of(program, "train", problem));
             run.update({{"loss", regions.empty() ? o.loss : text_of_loss(o, trained)},
                         {"window", {w[0], w[1], w[2]}},
                         {regions.empty() ? "classes" : "regions", problem.outputs},
                         {"seed", o.seed},
                         {"split_seed", o.division.seed},
                         {"validation", to_note(o.division)},
                         {"training_samples", split.train.size()},
                         {"validation_samples", split.test.size()}});
             report(program, o, out, results, volumes, std::move(run), files, last);
           }});
}

}  // namespace segmenting
}  // namespace mpigrad::trainer
