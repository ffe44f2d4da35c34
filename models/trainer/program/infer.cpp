// The commands `evaluate` and `predict`.

#include <nlohmann/json.hpp>

#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {

int infer(const Communicator& world, const Program& program, const InferOptions& o) {
  Problem problem;
  data::SourcePtr source;
  const auto files = files_of(program);
  const auto open_for = [&](const CheckpointInfo& info) {
    problem = problem_of(o.weights, info);
    source = open(program, o.source, o.source.data, o.source.part, o.scored);
    require_fitting(problem, *source, o.scored, o.weights);
    return source;
  };
  const auto prepare = [&](const Part& part) {
    Subject subject{.net = program.network(problem)};
    subject.headline = fmt::format("{} volumes of {} x {} to {}{}", part.samples.size(), problem.extents, problem.channels,
                                   o.scored ? "evaluate" : "predict", part.remark());
    return subject;
  };
  const auto finish = [&](const Outputs& out, const Predictions& predictions, nlohmann::ordered_json run,
                          const std::string& text) {
    Results results{.problem = problem, .predictions = predictions, .source = *source};
    results.scored = o.scored;
    if (o.scored) {
      const auto names = value_names(program);
      const auto values = values_of(program, *source, predictions);
      for (std::size_t i = 0; i < names.size(); ++i) results.values[names[i]] = values[i];
      run["validation_samples"] = predictions.samples.size();
    }
    report(program, o, out, results, std::move(run), files, text);
  };
  return trainer::infer(
      world, o,
      {.program = program.name, .files = files, .notes = split_notes, .open = open_for, .prepare = prepare, .report = finish});
}

}  // namespace mpigrad::trainer::program
