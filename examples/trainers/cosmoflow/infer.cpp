// What weights make of volumes that they have not seen, every one once: beside the truth, or where nobody knows it.

#include <nlohmann/json.hpp>

#include "examples/trainers/cosmoflow/cosmoflow.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/sources/open.h"
#include "models/trainer/samples.h"

namespace mpigrad::cosmoflow {
namespace {

// What the notes say of the network; of a number of targets.
CosmoFlowOptions network_of(const std::string& weights, const CheckpointInfo& info, std::size_t targets) {
  const auto& variant = trainer::note_of(weights, info, "variant");
  const auto& batch_norm = trainer::note_of(weights, info, "batch norm");
  require((variant == "hybrid" || variant == "mlperf" || variant == "pyramid") && (batch_norm == "yes" || batch_norm == "no"),
          "[weights] {}: variant '{}' with batch norm '{}' is no CosmoFlow", weights, printable(variant), printable(batch_norm));
  // Files from before there was a choice have no such note.
  const auto filters = info.notes.find("filters");
  const auto count = filters == info.notes.end() ? 0 : std::strtoll(filters->second.c_str(), nullptr, 10);
  if (filters != info.notes.end() && std::to_string(count) != filters->second)
    fail("[weights] {}: '{}' is no number of filters", weights, printable(filters->second));
  return {.variant = variant_of(variant),
          .batch_norm = batch_norm == "yes",
          .filters = count,
          .targets = static_cast<std::int64_t>(targets)};
}

data::SourcePtr open(const InferOptions& o) {
  const auto source = open_universes(o, o.group, o.scored);
  if (!o.scored) return trainer::chosen(source, trainer::all_samples(*source), "", {});
  require(has_parameters(*source), "[data] {} has no parameters to hold predictions against; `predict` needs none", o.data);
  return source;
}

}  // namespace

int infer(const Communicator& world, const InferOptions& o) {
  Results results;
  data::SourcePtr source;
  std::optional<Targets> targets;
  Baseline baseline;
  std::string variant;
  CosmoFlowOptions network;
  std::unique_ptr<CosmoFlow> net;
  const std::vector<std::string> files{predictions_file, picture_file, summary_file};
  const auto open_for = [&](const CheckpointInfo& info) {
    targets = targets_of(o.weights, info);
    require(targets || o.scored, "[weights] {} does not say what it predicts: it has no note '{}'; train again to have it",
            o.weights, targets_note);
    source = open(o);
    results.names = o.scored ? source->target_names() : targets->names;
    require(!targets || targets->names.size() == results.names.size(), "[data] {} has {} parameters, {} predicts {}: {}", o.data,
            results.names.size(), o.weights, targets ? targets->names.size() : 0, targets ? joined(targets->names, ", ") : "");
    if (o.scored) baseline = baseline_of(o.weights, info, results.names.size());
    if (targets && targets->names != results.names) {
      if (world.rank() == 0)
        fmt::print(stderr, "warning: {} was trained to predict {}; the targets of {} are called {}\n", o.weights,
                   joined(targets->names, ", "), o.data, joined(results.names, ", "));
      targets.reset(), baseline = {.missing = "the weights predict other parameters"};
    }
    if (targets) results.offset = targets->offset, results.scale = targets->scale;
    net = std::make_unique<CosmoFlow>(network_of(o.weights, info, results.names.size()));
    variant = trainer::note_of(o.weights, info, "variant"), network = net->options();
    if (const auto channels = info.notes.find("channels"); channels != info.notes.end())
      require(channels->second == std::to_string(source->channels()), "[data] {} has {} channels, {} is of {}", o.data,
              source->channels(), o.weights, printable(channels->second));
    // The hybrid network takes others, too; what it then makes of them nobody has trained.
    if (const auto side = info.notes.find("side");
        world.rank() == 0 && side != info.notes.end() && side->second != std::to_string(source->extents()[0]))
      fmt::print(stderr, "warning: the volumes of {} are {}, {} was trained on {}^3\n", o.data, source->extents(), o.weights,
                 printable(side->second));
    return source;
  };
  const auto prepare = [&](const trainer::Part& part) {
    trainer::Subject subject{.net = std::move(net)};
    subject.headline = fmt::format("{} volumes of {}^3 x {} to {}{}", part.samples.size(), source->extents()[0],
                                   source->channels(), o.scored ? "evaluate" : "predict", part.remark());
    return subject;
  };
  const auto measure = [&](const trainer::Part& part) {
    if (o.scored) results.spectrum = predict_baseline(world, *source, part.samples, baseline);
  };
  const auto finish = [&](const trainer::Outputs& out, const Predictions& predictions, nlohmann::ordered_json run,
                          const std::string& text) {
    results.predictions = predictions;
    if (o.scored && targets) score(results, targets->means, "the training set, as the weights' file says");
    else if (o.scored) score(results, {}, "the samples evaluated");
    run.update(
        {{"variant", variant}, {"filters", network.filters}, {"batch_norm", network.batch_norm}, {"side", source->extents()[0]}});
    if (o.scored) run["test_samples"] = predictions.samples.size();
    report(o, out, results, *source, std::move(run), files, text);
  };
  return trainer::infer(world, o,
                        {.program = "cosmoflow",
                         .files = files,
                         .notes = split_notes,
                         .transform = data::Transform::log1p,  // also of counts in a format that does not say so
                         .open = open_for,
                         .prepare = prepare,
                         .measure = measure,
                         .report = finish});
}

}  // namespace mpigrad::cosmoflow
