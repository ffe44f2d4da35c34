// Scores of predictions whose targets are known.

#include <algorithm>
#include <cmath>

#include "models/train/metrics.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {
namespace {

// AUC of the second of two classes; for more classes the mean over one-against-rest AUCs.
double auc_of(const Predictions& p, const std::vector<std::int64_t>& labels) {
  const auto n = static_cast<std::size_t>(p.outputs);
  RunningMean auc;
  for (std::size_t c = n == 2 ? 1 : 0; c < n; ++c) {
    std::vector<double> scores, roundings;
    std::vector<std::int64_t> is_class;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      // The score against the best other class: for two classes the difference of logits.
      double other = -1e300;
      for (std::size_t k = 0; k < n; ++k)
        if (k != c) other = std::max(other, p.predicted[i * n + k]);
      const double own = p.predicted[i * n + c];
      scores.push_back(own - other);
      roundings.push_back(rounding_of_outputs * std::max(std::abs(own), std::abs(other)));
      is_class.push_back(labels[i] == static_cast<std::int64_t>(c));
    }
    const auto positives = std::count(is_class.begin(), is_class.end(), 1);
    if (positives > 0 && positives < std::ssize(labels)) auc.add(roc_auc(scores, is_class, roundings));
  }
  return auc.mean();
}

double mean_r2(const Predictions& p) {
  RunningMean r2;
  for (const auto& each : regression_scores(p.predicted, p.truth, p.outputs)) r2.add(r2_of(each));
  return r2.mean();
}

}  // namespace

double r2_of(const RegressionScore& s) { return s.mean_mse > 0 ? 1 - s.mse / s.mean_mse : std::nan(""); }

std::vector<std::string> value_names(const Program& program, const Problem& p) {
  std::vector<std::string> names{program.kept.name + "_loss"};
  for (const auto& metric : program.metrics) names.push_back(metric.name);
  std::vector<const char*> usual_names;
  if (p.classes) usual_names = {"accuracy", "auc"};
  else if (program.r2) usual_names = {"r2"};
  for (const auto* usual : usual_names)
    if (std::find(names.begin(), names.end(), usual) == names.end()) names.emplace_back(usual);
  return names;
}

LossFunction loss_of(const Program& program, const Problem& problem) {
  if (program.loss_of)
    if (auto chosen = program.loss_of(problem)) return chosen;
  return problem.classes && program.class_loss ? program.class_loss : program.loss;
}

std::size_t place_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::vector<double> values_of(const Program& program, const Problem& problem, const data::Source& source, Predictions& p) {
  const Untaped scope;
  require(p.outputs == problem.outputs, "[trainer] the network of {} has {} outputs for each sample, and {} are needed",
          program.name, p.outputs, problem.outputs);
  const auto n = std::ssize(p.samples);
  Shape shape{n};  // like data::Batch::y
  if (!problem.classes)
    for (const auto extent : source.target_type().shape) shape.push_back(extent);
  const auto loss = loss_of(program, problem);
  const auto value = loss(from_vector({n, p.outputs}, p.predicted, DType::float64),
                          from_vector(shape, p.truth, problem.classes ? DType::int64 : DType::float64));
  restore_units(problem, p.predicted), restore_units(problem, p.truth);
  std::vector<double> values{value.item()};
  for (const auto& metric : program.metrics) values.push_back(metric.value(p));
  const std::vector<std::int64_t> labels(p.truth.begin(), p.truth.end());  // of classes
  const auto names = value_names(program, problem);
  for (auto i = values.size(); i < names.size(); ++i) {
    if (names[i] == "accuracy") values.push_back(accuracy(argmax_rows(p.predicted, p.outputs), labels));
    else if (names[i] == "auc") values.push_back(auc_of(p, labels));
    else values.push_back(mean_r2(p));
  }
  return values;
}

std::string text_of(const Program& program, const std::vector<std::string>& names, const std::vector<double>& values) {
  auto text = fmt::format("{} {:.4f}", program.kept.name, values.front());
  const auto own = program.metrics.size();
  for (std::size_t i = 1; i < names.size(); ++i) {
    const auto& name = names[i];
    if (i <= own) text += fmt::format(", {} {:.4g}", name, values[i]);
    else text += fmt::format(", {} {:.3f}", name == "auc" ? "AUC" : name == "r2" ? "R2" : name, values[i]);
  }
  return text;
}

std::string Findings::mean_of() const {
  return !means ? "the samples evaluated" : is_of_training ? "the training set" : "the training set, as the weights' file says";
}

void score(Findings& f) {
  if (f.problem.classes || !f.scored) return;
  const auto& p = f.predictions;
  f.scores = regression_scores(p.predicted, p.truth, p.outputs);
  f.against_mean = f.means ? regression_scores(p.predicted, p.truth, p.outputs, f.means->means) : f.scores;
  if (f.reference.values.empty()) return;
  for (const auto& of_target : regression_scores(f.reference.values, p.truth, p.outputs))
    f.reference_mse.push_back(of_target.mse);
}

std::vector<double> probabilities(const Findings& f) {
  const auto n = static_cast<std::ptrdiff_t>(f.problem.outputs);
  auto result = f.predictions.predicted;
  for (auto row = result.begin(); row != result.end(); row += n) {
    const auto end = row + n;
    const double largest = *std::max_element(row, end);
    double sum = 0;
    for (auto each = row; each != end; ++each) *each = std::exp(*each - largest), sum += *each;
    for (auto each = row; each != end; ++each) *each /= sum;
  }
  return result;
}

}  // namespace mpigrad::trainer::program
