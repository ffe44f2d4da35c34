// The commands `evaluate` and `predict`.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {
namespace {

// True if the targets have other names than the training's but the same number: they are taken in order, and a warning says so.
bool takes_other_names(const Program& program, const Problem& p, const data::Source& source, const SampleOptions& o) {
  const auto& names = source.target_names();
  if (p.classes || program.standardise || !o.targets.empty() || !o.label.empty() || source.has_classes() ||
      names.size() != p.targets.size())
    return false;
  return std::any_of(p.targets.begin(), p.targets.end(),
                     [&](const std::string& name) { return std::find(names.begin(), names.end(), name) == names.end(); });
}

data::SourcePtr open_part(const Program& program, const InferOptions& o) {
  try {
    return open(program, o.source, o.source.data, o.source.part, o.scored);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (!o.source.part.empty() || text.find("no dataset") == std::string::npos) throw;
    fail("{}; --group names the group of the file, such as val", text);
  }
}

}  // namespace

int infer(const Communicator& world, const Program& program, const InferOptions& o) {
  Findings f;
  f.scored = o.scored;
  data::SourcePtr opened;
  std::string reference;  // the note
  const std::vector<std::string> files{predictions_file, picture_file(program), summary_file};
  const auto warn = [&](const std::string& text) {
    if (world.rank() == 0) fmt::print(stderr, "warning: {}\n", text);
  };
  const auto open_for = [&](const CheckpointInfo& info) {
    auto& p = f.problem = problem_of(program, o.weights, info);
    if (!p.classes) f.means = means_of(o.weights, info);
    opened = open_part(program, o);
    require_fitting(p, *opened, o.data, o.weights, program.any_extents);
    if (opened->extents() != p.extents)
      warn(fmt::format("the samples of {} are {}, {} was trained on {}", o.data, opened->extents(), o.weights, p.extents));
    p.extents = opened->extents();
    if (program.reference && !p.classes && o.scored) {
      const auto note = info.notes.find(program.reference->note);
      if (note != info.notes.end()) reference = note->second;
      else f.reference.missing = fmt::format("the weights have no note '{}'; train again to write it", program.reference->note);
    }
    if (!o.scored) return f.source = chosen(opened, all_samples(*opened), "", {});
    if (takes_other_names(program, p, *opened, o.source)) {
      warn(fmt::format("{} was trained to predict {}; the targets of {} are called {}", o.weights, joined(p.targets, ", "),
                       o.data, joined(opened->target_names(), ", ")));
      p.targets = opened->target_names(), f.means.reset(), reference.clear();
      f.reference.missing = "the weights predict other parameters";
    }
    return f.source = learned(p, opened, targets_like(p, *opened, o.source), all_samples(*opened)).source;
  };
  const auto prepare = [&](const Part& part) {
    const auto& p = f.problem;
    Subject subject{.net = program.network(f.problem)};
    subject.headline = fmt::format("{} volumes of {} x {}{}; {}", part.samples.size(), p.extents, p.channels, part.remark(),
                                   p.classes ? fmt::format("{} classes", p.outputs) : "targets " + joined(p.targets, ", "));
    if (!o.scored || !p.classes) return subject;
    const auto all = count_classes(*f.source, all_samples(*f.source));
    require(std::ssize(all) <= p.outputs, "[data] {} has the classes 0 to {}, {} only {}", o.data, all.size() - 1, o.weights,
            p.outputs);
    f.majority = majority_of(count_classes(*f.source, part.samples));
    subject.headline += fmt::format(", always the most frequent one is right in {:.1f} %", 100 * f.majority);
    return subject;
  };
  const auto measure = [&](const Part& part) {
    if (reference.empty()) return;
    f.reference = program.reference->predict(world, *f.source, part.samples, reference, o.weights);
    restore_units(f.problem, f.reference.values);
  };
  const auto finish = [&](const Outputs& out, const Predictions& predictions, nlohmann::ordered_json run,
                          const std::string& text) {
    f.predictions = predictions;
    if (o.scored) f.values = values_of(program, f.problem, *f.source, f.predictions);
    else restore_units(f.problem, f.predictions.predicted);
    report(program, o, out, f, std::move(run), files, text);
  };
  return trainer::infer(world, o,
                        {.program = program.name,
                         .files = files,
                         .notes = split_notes(program),
                         .transform = program.transform,
                         .open = open_for,
                         .prepare = prepare,
                         .measure = measure,
                         .report = finish});
}

}  // namespace mpigrad::trainer::program
