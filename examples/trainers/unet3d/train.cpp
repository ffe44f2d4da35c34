#include <nlohmann/json.hpp>

#include <cmath>

#include "examples/trainers/unet3d/unet3d.h"
#include "models/losses/segmentation.h"
#include "models/nn/whole_copy.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "ops/loss/loss.h"

namespace mpigrad::unet {
namespace {

LossFunction loss_of(const std::string& name) {
  if (name == "dice") return segmentation::soft_dice_loss;
  if (name == "cross-entropy") return cross_entropy;
  if (name == "focal") return segmentation::focal_loss;
  if (name == "tversky") return {segmentation::tversky_loss, {.false_positives = 0.3, .false_negatives = 0.7}};
  return segmentation::dice_cross_entropy_loss;
}

const std::vector<std::string> decisive_notes{"program", "optimizer", "validation fraction", "validation seed", recipe_note};
trainer::Notes notes_of(const TrainOptions& o, const data::Source& source, const Recipe& recipe,
                        const std::vector<std::int64_t>& validation) {
  return {{"program", "unet3d"},
          {"optimizer", o.optimizer},
          {"samples", std::to_string(source.size())},
          {"validation fraction", fmt::format("{}", o.validation_fraction)},
          {"validation seed", std::to_string(o.split_seed)},
          {"validation", trainer::fingerprint(source, validation)},
          {recipe_note, to_note(recipe)},
          {"seed", std::to_string(o.seed)},
          {"loss", o.loss},
          {"augmentation", fmt::format("foreground {}, contrast {}, brightness {}, noise {}, elastic {} every {}", o.foreground,
                                       o.contrast, o.brightness, o.noise, o.elastic, o.elastic_spacing)},
          {"batch", std::to_string(o.batch)},
          {"precision", trainer::precision_of(o)}};
}

}  // namespace

int train(const Communicator& world, const TrainOptions& o) {
  const auto extents = trainer::parse_grid(o.grid, world.size(), trainer::Channels::split);
  trainer::check_grid(extents, world.size());
  const auto files = trainer::training_files(o, {cases_file, picture_file});
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, files), trainer::replaces(o));
  auto recipe = o.recipe;
  recipe.window = parse_extents("--window", o.window);
  if (!o.spacing.empty()) recipe.spacing = parse_spacing("--spacing", o.spacing);

  const auto grid = trainer::grid_of_ranks(world, o, extents);
  const auto volumes = open(world, o.data, "", o.source, true, recipe);
  data::Split split;
  of_input(world, [&] {
    require(volumes.seen->size() >= 2, "[data] {} holds one volume; training and validation need one each", o.data);
    split = data::split_train_test(volumes.seen->size(), o.validation_fraction, o.split_seed);
    trainer::require_batch(o, static_cast<std::int64_t>(split.train.size()));
  });
  trainer::require_same_data(world, *volumes.seen);
  recipe.channels = volumes.seen->channels();
  const auto geometry =
      trainer::geometry_of(world, *volumes.stored, trainer::all_samples(*volumes.stored), recipe.spacing.has_value());
  LabelCount labels(recipe.classes);
  const auto reading = labels.reading(*volumes.stored, trainer::dtype_of(o));
  auto contents = trainer::read_data(world, *volumes.stored, split.train, reading);
  const auto kept = trainer::read_data(world, *volumes.stored, split.test, reading);
  recipe.classes = labels.classes(world, o.data);
  std::optional<data::Loader> loader;
  std::unique_ptr<UNet3d> net;
  of_input(world, [&] {
    data::LoaderOptions options{.grid = grid, .batch = o.batch / o.accumulate, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    options.shuffle = true, options.flips = o.flips, options.samples = split.train, options.drop_last = true;
    options.crop = data::Crop{.extents = recipe.window, .foreground = o.foreground};
    if (o.elastic > 0) options.elastic = data::Elastic{.amplitude = o.elastic, .spacing = o.elastic_spacing};
    trainer::set_reading(options, *volumes.seen, o);
    options.intensity = {.contrast = o.contrast, .brightness = o.brightness, .noise = o.noise};
    loader.emplace(volumes.seen, options);
    net = std::make_unique<UNet3d>(network_options(recipe, o.norm_momentum, o.recompute));
    trainer::build(*net, loader->layout(), loader->shape(), o);
    recipe.filters = net->options().filters;
  });

  auto notes = notes_of(o, *volumes.seen, recipe, split.test);
  trainer::add_contents(notes, o.data, contents, &kept);
  contents += kept;
  notes[trainer::geometry_note] = trainer::to_note(geometry);
  Results results;
  results.classes = recipe.classes;
  // Groups of ranks segment volumes of their own, each with all of the weights.
  std::unique_ptr<UNet3d> whole;
  auto segments_on = grid;
  if (trainer::has_blocks(o)) {
    whole = std::make_unique<UNet3d>(network_options(recipe, o.norm_momentum, false));
    const nn::BuildOptions build{.seed = o.seed, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)};
    whole->build(loader->shape(), build);
    segments_on = make_grid(grid->world(), {.sample = extents.sample,
                                            .depth = extents.depth * extents.channel * extents.filter,
                                            .height = extents.height,
                                            .width = extents.width});
  }
  SegmentOptions segmenting{.grid = segments_on, .overlap = o.overlap, .dtype = trainer::dtype_of(o), .hausdorff = false};
  std::vector<std::string> values{"validation_loss"};
  for (std::int64_t c = 1; c < recipe.classes; ++c) values.push_back(fmt::format("dice_{}", c));
  const auto evaluate = [&] {
    if (whole) nn::copy_whole(*net, *whole);
    results.cases = segment(world, whole ? *whole : *net, volumes, recipe, split.test, segmenting);
    std::vector<double> row{1 - mean_dice(results.cases, recipe.classes)};
    for (std::size_t c = 1; c < static_cast<std::size_t>(recipe.classes); ++c)
      row.push_back(mean_of(results.cases, &Case::dice, c).value);
    return row;
  };
  const auto finish = [&] {
    segmenting.hausdorff = true;
    segmenting.done = [&](const Segmented& s) {
      if (world.rank() == 0 && results.shown.size() < most_shown) results.shown.push_back(s);
    };
    (void)evaluate();
  };
  const auto text = [](const std::vector<double>& row) {
    std::string line = "Dice";
    for (std::size_t c = 1; c < row.size(); ++c) line += fmt::format(" {:.3f}", row[c]);
    return line;
  };
  const auto& w = recipe.window;
  return trainer::train(
      world, o, extents, out,
      {.program = "unet3d",
       .net = *net,
       .loader = *loader,
       .loss = loss_of(o.loss),
       .notes = notes,
       .decisive = decisive_notes,
       .headline =
           fmt::format("{} volumes of up to {} x {} with {} classes for training, {} for validation; windows of {} x {} x {}; {}",
                       split.train.size(), volumes.seen->extents(), recipe.channels, recipe.classes, split.test.size(), w[0],
                       w[1], w[2], contents.remark() + geometry.remark()),
       .values = values,
       .evaluate = evaluate,
       .evaluated_samples = static_cast<std::int64_t>(split.test.size()),
       .accuracy = [](const std::vector<double>& row) { return 1 - row[0]; },  // the mean Dice
       .text = text,
       .finish = finish,
       .half_weights = o.half_weights,
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& last) {
             for (const auto& row : result.epochs)
               results.epochs.push_back(
                   {row.report.epoch, row.report.loss, row.values[0], {row.values.begin() + 1, row.values.end()}});
             run.update({{"variant", recipe.variant},
                         {"filters", recipe.filters},
                         {"norm", recipe.norm},
                         {"loss", o.loss},
                         {"window", {w[0], w[1], w[2]}},
                         {"classes", recipe.classes},
                         {"seed", o.seed},
                         {"split_seed", o.split_seed},
                         {"training_samples", split.train.size()},
                         {"validation_samples", split.test.size()}});
             report(o, out, results, volumes, std::move(run), files, last);
           }});
}

}  // namespace mpigrad::unet
