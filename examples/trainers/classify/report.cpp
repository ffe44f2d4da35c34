#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/trainers/classify/classify.h"
#include "framework/base/joined.h"

namespace mpigrad::classify {
namespace {

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample"};
  if (!r.labels.empty()) columns.push_back("label");
  columns.push_back("predicted");
  for (std::int64_t c = 0; c < r.classes; ++c) columns.push_back("probability_" + r.name_of(c));
  CsvWriter csv(path, columns, true);
  const auto n = static_cast<std::size_t>(r.classes);
  const auto predicted = argmax_rows(r.predictions.predicted, r.classes);
  const auto parts = probabilities(r);
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i])};
    if (!r.labels.empty()) row.emplace_back(r.name_of(r.labels[i]));
    row.emplace_back(r.name_of(predicted[i]));
    for (std::size_t c = 0; c < n; ++c) row.emplace_back(parts[i * n + c]);
    csv.row(row);
  }
}

void print_predictions(const Results& r, const data::Source& source) {
  const auto n = static_cast<std::size_t>(r.classes);
  const auto predicted = argmax_rows(r.predictions.predicted, r.classes);
  const auto parts = probabilities(r);
  fmt::print("\n{:>10} {:>12}\n", "predicted", "probability");
  for (std::size_t i = 0; i < std::min(predicted.size(), trainer::most_rows); ++i)
    fmt::print("{:>10} {:>12.4f}   {}\n", r.name_of(predicted[i]), parts[i * n + static_cast<std::size_t>(predicted[i])],
               std::filesystem::path(source.name_of_sample(r.predictions.samples[i])).filename().string());
  if (predicted.size() > trainer::most_rows)
    fmt::print("and {} more in {}\n", predicted.size() - trainer::most_rows, predictions_file);
  std::vector<std::string> counts;
  for (std::int64_t c = 0; c < r.classes; ++c)
    counts.push_back(fmt::format("{} of class {}", std::count(predicted.begin(), predicted.end(), c), r.name_of(c)));
  fmt::print("{}\n", joined(counts, ", "));
}

nlohmann::ordered_json to_json(const Score& s, bool regression) {
  if (regression) return {{"loss", s.loss}, {"r2", s.r2}};
  return {{"loss", s.loss}, {"accuracy", s.accuracy}, {"auc", s.auc}};
}

}  // namespace

std::string Results::name_of(std::int64_t label) const {
  return names.empty() ? std::to_string(label) : names[static_cast<std::size_t>(label)];
}

std::vector<double> probabilities(const Results& r) {
  const auto n = static_cast<std::size_t>(r.classes);
  auto result = r.predictions.predicted;
  for (auto row = result.begin(); row != result.end(); row += static_cast<std::ptrdiff_t>(n)) {
    const auto end = row + static_cast<std::ptrdiff_t>(n);
    const double largest = *std::max_element(row, end);
    double sum = 0;
    for (auto each = row; each != end; ++each) *each = std::exp(*each - largest), sum += *each;
    for (auto each = row; each != end; ++each) *each /= sum;
  }
  return result;
}

namespace {

Score score(const Predictions& p, const std::vector<std::int64_t>& labels, std::int64_t classes) {
  Score result;
  result.accuracy = accuracy(argmax_rows(p.predicted, classes), labels);
  const auto n = static_cast<std::size_t>(classes);
  RunningMean loss, auc;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double* row = p.predicted.data() + i * n;
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += std::exp(row[c] - largest);
    loss.add(largest + std::log(sum) - row[static_cast<std::size_t>(labels[i])]);
  }
  result.loss = loss.mean();
  for (std::size_t c = classes == 2 ? 1 : 0; c < n; ++c) {
    std::vector<double> scores, roundings;
    std::vector<std::int64_t> is_class;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      // Against the best of the others: for two classes the difference of logits.
      double other = -1e300;
      for (std::size_t k = 0; k < n; ++k)
        if (k != c) other = std::max(other, p.predicted[i * n + k]);
      const double own = p.predicted[i * n + c];
      scores.push_back(own - other);
      roundings.push_back(rounding_of_outputs * std::max(std::abs(own), std::abs(other)));
      is_class.push_back(labels[i] == static_cast<std::int64_t>(c));
    }
    const auto positives = std::count(is_class.begin(), is_class.end(), 1);
    if (positives > 0 && positives < static_cast<std::ptrdiff_t>(labels.size())) auc.add(roc_auc(scores, is_class, roundings));
  }
  result.auc = auc.mean();
  return result;
}

}  // namespace

double majority_of(const std::vector<std::int64_t>& counts) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / static_cast<double>(all);
}

void score(Results& r, const Recipe& recipe, Predictions predictions) {
  r.predictions = std::move(predictions);
  if (recipe.regression()) {
    r.score = score_targets(r, recipe);
    return;
  }
  r.labels.assign(r.predictions.truth.begin(), r.predictions.truth.end());
  r.score = score(r.predictions, r.labels, r.classes);
}

void report(const trainer::Options& o, const trainer::Outputs& out, const Results& r, const Recipe& recipe,
            const data::Source& source, nlohmann::ordered_json run, const std::vector<std::string>& files,
            const std::string& text) {
  const bool regression = recipe.regression(), scored = r.scored();
  if (regression) write_targets(out / predictions_file, r, recipe, source);
  else write_predictions(out / predictions_file, r, source);
  draw(out / picture_file, r, recipe, source);
  auto document = std::move(run);
  if (regression) document["targets"] = targets_json(r, recipe);
  if (scored) document["validation"] = to_json(r.score, regression);
  if (scored && !regression) document["majority_accuracy"] = r.majority;
  if (!r.names.empty()) document["class_names"] = r.names;
  if (scored) {
    auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
    for (const auto& e : r.epochs)
      epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"validation", to_json(e.validation, regression)}});
  }
  document["out"] = out.folder();
  trainer::write_text(out / summary_file, tool::to_text(document) + "\n");
  if (o.json) return fmt::print("{}\n", tool::to_text(document));
  if (regression) print_targets(r, recipe, source);
  else if (scored)
    fmt::print("\nvalidation: AUC {:.3f}, accuracy {:.3f} (most frequent class {:.3f}), cross-entropy {:.4f}\n", r.score.auc,
               r.score.accuracy, r.majority, r.score.loss);
  else print_predictions(r, source);
  fmt::print("{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(files), ", "));
}

}  // namespace mpigrad::classify
