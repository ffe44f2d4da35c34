#include "models/trainer/recipe/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/data/loader/loader.h"
#include "models/train/trainer.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/recipe/version.h"
#include "ops/gpu_settings.h"

namespace mpigrad::trainer {
namespace {

const char* yes(bool x) { return x ? "yes" : "no"; }

Explained network_of(const Explanation& e) {
  Explained part{"network", {}};
  for (const auto& note : {"dropout's kept part", "momentum of batch norm", "statistics of batch norm", "frozen parameters"})
    if (const auto found = e.notes.find(note); found != e.notes.end())
      part.lines.push_back(fmt::format("{}: {}", note, found->second));
  part.lines.push_back(fmt::format("{} parameters", e.net.parameters().elements()));
  for (std::size_t i = 0; i < e.net.parameters().size(); ++i) {
    const auto& p = e.net.parameters()[i];
    const auto& global = p.value.layout() ? p.value.layout()->global : p.value.shape();
    part.lines.push_back(fmt::format("{} {} {}{}", p.name, global, name_of(p.value.dtype()),
                                     p.value.shape() == global ? "" : fmt::format(", here {}", p.value.shape())));
  }
  return part;
}

Explained data_of(const data::Loader& loader) {
  const auto& o = loader.options();
  Explained part{"data", {}};
  const auto add = [&](std::string line) { part.lines.push_back(std::move(line)); };
  add(fmt::format("{} samples of {}, {} batches of {}", loader.samples() / o.passes, loader.source().extents(), loader.steps(),
                  o.batch));
  if (o.passes > 1) add(fmt::format("an epoch passes over them {} times", o.passes));
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    add(fmt::format("epoch {} begins with samples {}", epoch + 1, joined(loader.samples_of(epoch, 0), " ")));
  add(fmt::format("flips {}, shifts {}, transpositions {}", yes(o.flips), yes(o.shifts), yes(o.transpositions)));
  if (o.crop) add(fmt::format("windows of {}, {} of them over a class other than 0", o.crop->extents, o.crop->foreground));
  if (!o.augment.steps().empty()) add("augmented: " + o.augment.text());
  add(fmt::format("store of {} bytes a rank, {} reading, {} ghost planes", o.store_bytes,
                  o.collective ? "collective" : "independent", o.ghosts));
  return part;
}

// The learning rate along the training, and the conditions that end it.
Explained schedule_of(const Explanation& e) {
  Explained part{"schedule", {}};
  const auto& fit = e.training.fit;
  const auto all = e.steps * fit.epochs;
  part.lines.push_back(fmt::format("{} epochs of {} steps, {} micro-batches a step", fit.epochs, e.steps, fit.accumulate));
  std::vector<std::string> rates;
  for (const auto step : {std::int64_t{0}, all / 8, all / 4, all / 2, 3 * all / 4, all - 1})
    if (fit.learning_rate)
      rates.push_back(fmt::format("{} at step {}", fit.learning_rate(std::max<std::int64_t>(step, 0)), step));
  part.lines.push_back("learning rate " + joined(rates, ", "));
  part.lines.push_back(
      fmt::format("looks at {}, better if {}", e.training.monitor, e.training.larger_is_better ? "larger" : "smaller"));
  part.lines.push_back(
      fmt::format("ends after {} epochs without gain (0: never), {} s of training, {} s since the start (0: no limit)",
                  e.training.patience, 60 * e.training.most_minutes, 60 * e.training.time_limit_minutes));
  return part;
}

Explained optimizer_of(const Explanation& e) {
  Explained part{"optimizer", {}};
  for (const auto& note : {"optimizer", "learning rate", "momentum", "weight decay", averages_note})
    if (const auto found = e.notes.find(note); found != e.notes.end())
      part.lines.push_back(fmt::format("{}: {}", note, found->second));
  std::int64_t elements = 0;
  for (const auto& tensor : e.optimizer.state()) elements += tensor.value.elements();
  part.lines.push_back(
      fmt::format("{} numbers of state on this rank; gradients of norm {} at most (0: any)", elements, e.training.fit.clip_norm));
  part.lines.push_back(e.optimizer.work());
  if (e.training.fit.noise != nullptr) part.lines.emplace_back("the gradient noise scale is measured");
  return part;
}

Explained ranks_of_run(const Communicator& world, const Explanation& e) {
  Explained part{"grid", {}};
  part.lines.push_back(fmt::format("{} ranks, {}, communication {}", world.size(), to_string(e.grid), e.options.communication));
  if (e.loader != nullptr && e.loader->layout())
    part.lines.push_back(fmt::format("a rank's block of a batch {}", e.loader->layout()->box().extents()));
  if (e.options.sharded_weights) part.lines.emplace_back("weights, gradients and the optimizer's state are sharded");
  for (const auto& layers : e.options.grid_of) part.lines.push_back("layers " + layers);
  const auto settings = gpu_settings();
  part.lines.push_back(fmt::format("computes in {} on {}; tf32 {}, autotune {}, deterministic {}, graph {}",
                                   precision_of(e.options), name_of(current_device()), yes(settings.tf32), yes(settings.autotune),
                                   yes(settings.deterministic), yes(e.training.fit.graph)));
  return part;
}

Explained files_of_run(const Explanation& e) {
  Explained part{"files", {}};
  for (const auto& file : e.files)
    part.lines.push_back(file.bytes > 0 ? fmt::format("{}, {} bytes", file.name, file.bytes) : file.name);
  const auto& t = e.training;
  part.lines.push_back(fmt::format(
      "checkpoints every {} epochs, {} steps, {} s (0: never); {} stay; best weights {}; in the background {}",
      t.checkpoint_every, t.checkpoint_steps, 60 * t.checkpoint_minutes, t.keep, yes(t.keep_best), yes(!t.wait_for_checkpoints)));
  if (!t.local_folder.empty())
    part.lines.push_back(fmt::format("copies in {} every {} steps", t.local_folder.string(), t.local_steps));
  if (e.options.mtbf > 0) part.lines.push_back(fmt::format("advice for a failure every {} hours", e.options.mtbf));
  for (const auto& entry : e.options.mllog_entries) part.lines.push_back("mllog.txt says " + entry);
  return part;
}

}  // namespace

void explain(const Communicator& world, const Explanation& e) {
  std::vector<Explained> parts{network_of(e)};
  if (e.loader != nullptr) parts.push_back(data_of(*e.loader));
  parts.insert(parts.end(), {optimizer_of(e), schedule_of(e), ranks_of_run(world, e), files_of_run(e)});
  Explained rest{"notes of the weights", {}};
  for (const auto& [name, text] : e.notes) rest.lines.push_back(fmt::format("{}: {}", name, text));
  parts.push_back(std::move(rest));
  parts.insert(parts.end(), e.more.begin(), e.more.end());
  std::string text;
  if (e.options.json) {
    nlohmann::ordered_json document;
    for (const auto& part : parts) document[part.heading] = part.lines;
    text = tool::to_text(document) + "\n";
  } else {
    for (const auto& part : parts) {
      text += part.heading + "\n";
      for (const auto& line : part.lines) text += "  " + line + "\n";
    }
  }
  tool::print_once(world.transport(), text);
}

void write_recipe(const Communicator& world, const Outputs& out, const Options& o, const GridExtents& grid, const Notes& notes,
                  std::int64_t first_epoch) {
  const auto note = [&](const char* name) {
    const auto found = notes.find(name);
    return found == notes.end() ? std::string("none") : found->second;
  };
  const std::vector<std::pair<std::string, std::string>> data{{"training_data", note(training_contents_note)},
                                                              {"kept_data", note(kept_contents_note)}};
  tool::together(world, [&] {
    if (world.rank() != 0) return;
    for (const auto& [name, text] : data)
      if (const auto before = o.origin.find(name); before != o.origin.end() && before->second != text)
        fmt::print(stderr, "warning: the recipe's {} was {}, this run's is {}: it cannot repeat the recipe's run\n", name,
                   before->second, text);
    if (const auto resumed = o.origin.find("resumed_after_epochs"); resumed != o.origin.end())
      fmt::print(stderr,
                 "warning: the recipe is of the last start of a run, after {} epochs: earlier ones may have had other keys\n",
                 resumed->second);
    auto document = fmt::format(
        "# A run of {0} {1}. `{0} {1} recipe.toml --out FOLDER` repeats it.\nprogram = \"{0}\"\ncommand = \"{1}\"\n{2}",
        o.program, o.command, o.recipe);
    document += fmt::format("\n[origin]\nversion = \"{}\"\ncommit = \"{}\"\nranks = \"{}\"\ngrid = \"{}\"\n", version(), commit(),
                            world.size(), to_string(grid));
    for (const auto& [name, text] : data) document += fmt::format("{} = \"{}\"\n", name, text);
    std::vector<std::string> given;
    for (const auto& name : o.given)
      if (name != "checkpoint.allow_changes") given.push_back(fmt::format("\"{}\"", name));
    if (first_epoch > 0) document += fmt::format("resumed_after_epochs = \"{}\"\n", first_epoch);
    document += fmt::format("given = [{}]  # the other keys have their defaults\n", joined(given, ", "));
    tool::write_text(out / recipe_file, document);
  });
}

}  // namespace mpigrad::trainer
