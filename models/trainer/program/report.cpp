// The summary of a command.

#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/trainer/folder/names.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {
namespace {

nlohmann::ordered_json number(double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); }

nlohmann::ordered_json targets_json(const Program& program, const Findings& f) {
  auto document = nlohmann::ordered_json::object();
  const auto& p = f.problem;
  for (std::size_t t = 0; t < p.targets.size(); ++t) {
    auto& target = document[p.targets[t]] = nlohmann::ordered_json::object();
    if (f.means) target["training_mean"] = f.means->means[t];
    if (!p.deviations.empty()) target["training_deviation"] = p.deviations[t];
    if (f.scores.empty()) continue;
    const auto &s = f.scores[t], &of_mean = f.against_mean[t];
    target.update({{"mse", s.mse},
                   {"rmse", std::sqrt(s.mse)},
                   {"mae", s.mae},
                   {"r2", number(r2_of(s))},
                   {"mean_mse", of_mean.mean_mse},
                   {"mean_mae", of_mean.mean_mae},
                   {"ratio", number(s.mse / of_mean.mean_mse)},
                   {"correlation", s.correlation}});
    if (!f.reference_mse.empty()) {
      target[program.reference->name + "_mse"] = f.reference_mse[t];
      target[program.reference->name + "_ratio"] = number(s.mse / f.reference_mse[t]);
    }
  }
  return document;
}

nlohmann::ordered_json summary(const Program& program, const Findings& f, nlohmann::ordered_json run) {
  const auto& p = f.problem;
  for (const auto& setting : program.settings) run[setting.name] = to_json(p.values.at(setting.name));
  run["extents"] = std::vector<std::int64_t>(p.extents.begin(), p.extents.end());
  if (f.scored) run[program.kept.name + "_samples"] = f.predictions.samples.size();
  if (p.classes) run["classes"] = p.outputs;
  else run["targets"] = targets_json(program, f);
  if (f.scored) {
    const auto names = value_names(program, p);
    auto& values = run[program.kept.name] = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < names.size(); ++i) values[i == 0 ? "loss" : names[i]] = number(f.values[i]);
    if (p.classes) run["majority_accuracy"] = f.majority;
    else run["mean_of"] = f.mean_of();
    if (program.reference && f.reference_mse.empty()) run[program.reference->name + "_missing"] = f.reference.missing;
    auto& epochs = run["epochs"] = nlohmann::ordered_json::array();
    for (const auto& row : f.epochs) {
      nlohmann::ordered_json epoch{{"epoch", row.report.epoch + 1}, {"train_loss", row.report.loss}};
      for (std::size_t i = 0; i < names.size(); ++i) epoch[names[i]] = number(row.values[i]);
      epochs.push_back(std::move(epoch));
    }
  }
  if (!p.class_names.empty()) run["class_names"] = p.class_names;
  return run;
}

}  // namespace

std::string picture_file(const Program& program) { return program.name + ".png"; }

void report(const Program& program, const trainer::Options& o, const Outputs& out, Findings& f, nlohmann::ordered_json run,
            const std::vector<std::string>& files, const std::string& text) {
  score(f);
  write_predictions(out / predictions_file, f);
  draw(out / picture_file(program), program, f);
  auto document = summary(program, f, std::move(run));
  document["out"] = out.folder();
  write_text(out / summary_file, tool::to_text(document) + "\n");
  if (o.json) return fmt::print("{}\n", tool::to_text(document));
  print_findings(program, f);
  fmt::print("{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(files), ", "));
}

}  // namespace mpigrad::trainer::program
