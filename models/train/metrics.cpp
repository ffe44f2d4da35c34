#include "models/train/metrics.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/new_file.h"

namespace mpigrad {

std::string CsvCell::text() const {
  if (const auto* number = std::get_if<double>(&value_)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return fmt::format("{}", *number);
  const auto& text = std::get<std::string>(value_);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

CsvWriter::CsvWriter(const std::filesystem::path& path, std::vector<std::string> columns, bool overwrite,
                     const std::vector<std::vector<CsvCell>>& earlier)
    : path_(path), columns_(columns.size()) {
  require(!columns.empty(), "[csv] {}: a table has at least one column", path.string());
  const auto require_new = [&] {
    require(overwrite || !is_name_taken(path), "[csv] {}: exists already, and overwriting was not requested", path.string());
  };
  require_new();
  file_ = std::make_shared<NewFile>(path, "csv");
  row(std::vector<CsvCell>(columns.begin(), columns.end()));
  for (const auto& cells : earlier) row(cells);
  require_new();  // another program may have created it meanwhile
  file_->commit();
}

void CsvWriter::row(std::span<const CsvCell> cells) {
  require(cells.size() == columns_, "[csv] {}: {} cells for {} columns", path_.string(), cells.size(), columns_);
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    line += cells[i].text();
  }
  line += '\n';
  file_->write(line);
}

std::vector<RegressionScore> regression_scores(std::span<const double> predicted, std::span<const double> truth,
                                               std::int64_t targets, std::span<const double> means) {
  require(
      targets > 0 && predicted.size() == truth.size() && !truth.empty() && truth.size() % static_cast<std::size_t>(targets) == 0,
      "[regression_scores] predictions and truth are [n, {}] with n > 0, not {} and {} values", targets, predicted.size(),
      truth.size());
  const auto columns = static_cast<std::size_t>(targets), n = truth.size() / columns;
  require(means.empty() || means.size() == columns, "[regression_scores] {} means for {} targets", means.size(), targets);
  std::vector<RegressionScore> scores(columns);
  for (std::size_t t = 0; t < columns; ++t) {
    auto& s = scores[t];
    double truth_mean = 0, predicted_mean = 0;
    for (std::size_t i = t; i < truth.size(); i += columns) truth_mean += truth[i], predicted_mean += predicted[i];
    truth_mean /= static_cast<double>(n), predicted_mean /= static_cast<double>(n);
    s.mean = means.empty() ? truth_mean : means[t];
    double covariance = 0, truth_variance = 0, predicted_variance = 0, largest_predicted = 0, largest_truth = 0;
    for (std::size_t i = t; i < truth.size(); i += columns) {
      const double error = predicted[i] - truth[i], mean_error = s.mean - truth[i];
      s.mse += error * error, s.mae += std::abs(error);
      s.mean_mse += mean_error * mean_error, s.mean_mae += std::abs(mean_error);
      const double a = predicted[i] - predicted_mean, b = truth[i] - truth_mean;
      covariance += a * b, predicted_variance += a * a, truth_variance += b * b;
      largest_predicted = std::max(largest_predicted, std::abs(predicted[i]));
      largest_truth = std::max(largest_truth, std::abs(truth[i]));
    }
    for (double* sum : {&s.mse, &s.mae, &s.mean_mse, &s.mean_mae}) *sum /= static_cast<double>(n);
    const auto varies = [n](double variance, double largest, double rounding) {
      return variance > static_cast<double>(n) * std::pow(largest * rounding, 2);
    };
    constexpr double rounding_of_truth = 1e-12;
    const bool both = varies(predicted_variance, largest_predicted, rounding_of_outputs) &&
                      varies(truth_variance, largest_truth, rounding_of_truth);
    s.correlation = both ? covariance / std::sqrt(predicted_variance * truth_variance) : 0;
  }
  return scores;
}

double roc_auc(std::span<const double> scores, std::span<const std::int64_t> labels, std::span<const double> roundings) {
  require(scores.size() == labels.size(), "[roc_auc] {} scores for {} labels", scores.size(), labels.size());
  require(roundings.empty() || roundings.size() == scores.size(), "[roc_auc] {} roundings for {} scores", roundings.size(),
          scores.size());
  const auto rounding = [&](std::size_t i) { return roundings.empty() || !std::isfinite(scores[i]) ? 0 : roundings[i]; };
  std::vector<double> lowest, highest;  // bounds of the scores of negatives
  for (std::size_t i = 0; i < labels.size(); ++i) {
    require(labels[i] == 0 || labels[i] == 1, "[roc_auc] labels are 0 or 1, label {} is {}", i, labels[i]);
    require(!std::isnan(scores[i]), "[roc_auc] score {} is not a number", i);
    if (labels[i] == 0) lowest.push_back(scores[i] - rounding(i)), highest.push_back(scores[i] + rounding(i));
  }
  const auto negatives = static_cast<double>(lowest.size()), positives = static_cast<double>(labels.size()) - negatives;
  require(positives > 0 && negatives > 0, "[roc_auc] both classes are needed: {} positives, {} negatives", positives, negatives);
  std::sort(lowest.begin(), lowest.end()), std::sort(highest.begin(), highest.end());
  double twice = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == 0) continue;
    const auto below = std::lower_bound(highest.begin(), highest.end(), scores[i] - rounding(i)) - highest.begin();
    const auto above = lowest.end() - std::upper_bound(lowest.begin(), lowest.end(), scores[i] + rounding(i));
    twice += negatives + static_cast<double>(below - above);  // 2 for each below, 1 for each tie
  }
  return twice / (2 * positives * negatives);
}

double accuracy(std::span<const std::int64_t> predicted, std::span<const std::int64_t> labels) {
  require(predicted.size() == labels.size() && !labels.empty(), "[accuracy] {} predictions for {} labels", predicted.size(),
          labels.size());
  std::size_t equal = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) equal += predicted[i] == labels[i] ? 1 : 0;
  return static_cast<double>(equal) / static_cast<double>(labels.size());
}

std::vector<std::int64_t> argmax_rows(std::span<const double> scores, std::int64_t classes) {
  require(classes > 0 && scores.size() % static_cast<std::size_t>(classes) == 0,
          "[argmax_rows] scores are [n, {}], not {} values", classes, scores.size());
  std::vector<std::int64_t> result;
  for (auto row = scores.begin(); row != scores.end(); row += classes)
    result.push_back(std::max_element(row, row + classes) - row);
  return result;
}

}  // namespace mpigrad
