// Tables of predictions and scores, written as files and printed.

#include <algorithm>
#include <cmath>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/train/metrics.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {
namespace {

// A prediction in physical units.
double physical(const Findings& f, std::size_t i) {
  const auto t = i % f.means->names.size();
  return f.means->offset[t] + f.means->scale[t] * f.predictions.predicted[i];
}

std::string file_of(const Findings& f, std::size_t i) {
  return std::filesystem::path(f.source->name_of_sample(f.predictions.samples[i])).filename().string();
}

void print_rest(std::size_t samples) {
  if (samples > most_rows) fmt::print("and {} more in {}\n", samples - most_rows, predictions_file);
}

void write_classes(const std::filesystem::path& path, const Findings& f) {
  const auto& p = f.problem;
  std::vector<std::string> columns{"sample"};
  if (f.scored) columns.push_back("label");
  columns.push_back("predicted");
  for (std::int64_t c = 0; c < p.outputs; ++c) columns.push_back("probability_" + p.class_name(c));
  CsvWriter csv(path, columns, true);
  const auto n = static_cast<std::size_t>(p.outputs);
  const auto predicted = argmax_rows(f.predictions.predicted, p.outputs);
  const auto parts = probabilities(f);
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    std::vector<CsvCell> row{f.source->name_of_sample(f.predictions.samples[i])};
    if (f.scored) row.emplace_back(p.class_name(static_cast<std::int64_t>(f.predictions.truth[i])));
    row.emplace_back(p.class_name(predicted[i]));
    for (std::size_t c = 0; c < n; ++c) row.emplace_back(parts[i * n + c]);
    csv.row(row);
  }
}

void write_numbers(const std::filesystem::path& path, const Findings& f) {
  std::vector<std::string> columns{"sample"};
  for (const auto& name : f.problem.targets) {
    if (f.scored) columns.push_back(name + "_true");
    columns.push_back(name + "_predicted");
    if (f.physical()) columns.push_back(name + "_physical");
  }
  CsvWriter csv(path, columns, true);
  const auto width = f.problem.targets.size();
  for (std::size_t i = 0; i < f.predictions.samples.size(); ++i) {
    std::vector<CsvCell> row{f.source->name_of_sample(f.predictions.samples[i])};
    for (std::size_t t = i * width; t < (i + 1) * width; ++t) {
      if (f.scored) row.emplace_back(f.predictions.truth[t]);
      row.emplace_back(f.predictions.predicted[t]);
      if (f.physical()) row.emplace_back(physical(f, t));
    }
    csv.row(row);
  }
}

void print_classes(const Findings& f) {
  const auto& p = f.problem;
  const auto n = static_cast<std::size_t>(p.outputs);
  const auto predicted = argmax_rows(f.predictions.predicted, p.outputs);
  const auto parts = probabilities(f);
  fmt::print("\n{:>10} {:>12}\n", "predicted", "probability");
  for (std::size_t i = 0; i < std::min(predicted.size(), most_rows); ++i)
    fmt::print("{:>10} {:>12.4f}   {}\n", p.class_name(predicted[i]), parts[i * n + static_cast<std::size_t>(predicted[i])],
               file_of(f, i));
  print_rest(predicted.size());
  std::vector<std::string> counts;
  for (std::int64_t c = 0; c < p.outputs; ++c)
    counts.push_back(fmt::format("{} of class {}", std::count(predicted.begin(), predicted.end(), c), p.class_name(c)));
  fmt::print("{}\n", joined(counts, ", "));
}

void print_numbers(const Findings& f) {
  const auto width = f.problem.targets.size(), samples = f.predictions.samples.size();
  fmt::print("\n");
  for (const auto& name : f.problem.targets) fmt::print("{:>11} ", name);
  fmt::print("  predicted{}\n", f.physical() ? ", in physical units" : "");
  for (std::size_t i = 0; i < std::min(samples, most_rows); ++i) {
    for (std::size_t t = i * width; t < (i + 1) * width; ++t)
      fmt::print("{:>11.4g} ", f.physical() ? physical(f, t) : f.predictions.predicted[t]);
    fmt::print("  {}\n", file_of(f, i));
  }
  print_rest(samples);
}

void print_scores(const Findings& f) {
  fmt::print("\n{:<16} {:>11} {:>11} {:>11} {:>8}   on {} samples\n", "target", "MSE", "RMSE", "MAE", "R2",
             f.predictions.samples.size());
  for (std::size_t t = 0; t < f.scores.size(); ++t) {
    const auto& s = f.scores[t];
    fmt::print("{:<16} {:>11.4g} {:>11.4g} {:>11.4g} {:>8.3f}\n", f.problem.targets[t], s.mse, std::sqrt(s.mse), s.mae, r2_of(s));
  }
}

void print_with_reference(const Reference& reference, const std::string& kept, const Findings& f) {
  const bool has_reference = !f.reference_mse.empty();
  const auto of_reference = [&](const std::string& text) { return has_reference ? text : std::string(); };
  fmt::print("\n{:<16} {:>11} {:>11} {:>7} {}{:>11} {:>11}   on {} {} samples\n", "target", "MSE", "of mean", "ratio",
             of_reference(fmt::format("{:>11} {:>7} ", reference.label, "ratio")), "MAE", "of mean", f.predictions.samples.size(),
             kept);
  for (std::size_t t = 0; t < f.against_mean.size(); ++t) {
    const auto& s = f.against_mean[t];
    const double squared = has_reference ? f.reference_mse[t] : 0;
    fmt::print("{:<16} {:>11.5f} {:>11.5f} {:>7.3f} {}{:>11.5f} {:>11.5f}\n", f.problem.targets[t], s.mse, s.mean_mse,
               s.mse / s.mean_mse, of_reference(fmt::format("{:>11.5f} {:>7.3f} ", squared, s.mse / squared)), s.mae, s.mean_mae);
  }
  fmt::print("of mean: of predicting the mean of {}\n", f.mean_of());
  fmt::print("{}: {}\n", reference.label, has_reference ? reference.help : "none, " + printable(f.reference.missing));
}

}  // namespace

void write_predictions(const std::filesystem::path& path, const Findings& f) {
  if (f.problem.classes) write_classes(path, f);
  else write_numbers(path, f);
}

void print_findings(const Program& program, const Findings& f) {
  if (!f.scored) return f.problem.classes ? print_classes(f) : print_numbers(f);
  const auto names = value_names(program, f.problem);
  const auto value = [&](const std::string& name) { return f.values[place_of(names, name)]; };
  if (f.problem.classes)
    fmt::print("\n{}: AUC {:.3f}, accuracy {:.3f} (most frequent class {:.3f}), loss {:.4f}\n", program.kept.name, value("auc"),
               value("accuracy"), f.majority, f.values.front());
  else if (program.reference) print_with_reference(*program.reference, program.kept.name, f);
  else print_scores(f);
  if (program.metrics.empty()) return;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < names.size(); ++i) values.push_back(fmt::format("{} {:.9g}", names[i], f.values[i]));
  fmt::print("{}\n", joined(values, ", "));
}

}  // namespace mpigrad::trainer::program
