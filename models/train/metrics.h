#pragma once
// How well it went: tables as CSV, means, scores. Plain numbers of one rank; what is spread over ranks is gathered first.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mpigrad {

class NewFile;

// A number or a text of a table; numbers are written so that reading them gives the same ones.
class CsvCell {
 public:
  CsvCell(double value) : value_(value) {}
  CsvCell(std::int64_t value) : value_(value) {}
  CsvCell(int value) : value_(std::int64_t{value}) {}
  CsvCell(std::string value) : value_(std::move(value)) {}
  CsvCell(const char* value) : value_(std::string(value)) {}
  std::string text() const;  // with quotes where the text needs them

 private:
  std::variant<double, std::int64_t, std::string> value_;
};

// Comma-separated values after RFC 4180 (lines end in \n). The header is written at once, and every row is on its way to the disk
// when row() returns.
class CsvWriter {
 public:
  // The file gets its name when the header and the rows `earlier` are in it; what had that name before stays until then. Errors:
  // the file exists and is not to be overwritten, cannot be written.
  CsvWriter(const std::filesystem::path& path, std::vector<std::string> columns, bool overwrite = false,
            const std::vector<std::vector<CsvCell>>& earlier = {});
  // Errors: another number of cells than columns, a full disk.
  void row(std::span<const CsvCell> cells);
  void row(std::initializer_list<CsvCell> cells) { row(std::span<const CsvCell>(cells.begin(), cells.size())); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::size_t columns_;
  std::shared_ptr<NewFile> file_;
};

// Mean of values with weights, such as the losses of batches of different size.
class RunningMean {
 public:
  void add(double value, double weight = 1) { sum_ += value * weight, weight_ += weight; }
  double mean() const { return weight_ == 0 ? std::nan("") : sum_ / weight_; }
  double weight() const { return weight_; }
  double sum() const { return sum_; }
  static RunningMean of(double sum, double weight) {
    RunningMean result;
    result.sum_ = sum, result.weight_ = weight;
    return result;
  }
  void reset() { sum_ = weight_ = 0; }

 private:
  double sum_ = 0, weight_ = 0;
};

// Outputs of the same network for the same sample differ between batches of different sizes and between grids, because other
// kernels add up in another order. Outputs that differ by less than this part of their size count as equal.
inline constexpr double rounding_of_outputs = 0x1p-16;

// Of one target.
struct RegressionScore {
  double mse = 0, mae = 0;            // of the predictions
  double mean_mse = 0, mean_mae = 0;  // of predicting `mean` for every sample
  double mean = 0;
  double correlation = 0;  // Pearson's, 0 where one of the two does not vary by more than rounding
};
// predicted, truth: [n, targets], row-major. `means`: what predict-the-mean predicts, one for each target, such as the means of
// the training set; empty: the means of `truth`.
std::vector<RegressionScore> regression_scores(std::span<const double> predicted, std::span<const double> truth,
                                               std::int64_t targets, std::span<const double> means = {});

// Area under the receiver operating characteristic: the chance that a positive has a higher score than a negative, ties counting
// one half (Mann and Whitney 1947). `roundings`: how far each score may be from the exact one; two scores are a tie if they
// differ by no more than both of theirs together. Empty: only equal scores are. Errors: only one class, a score that is not a
// number.
double roc_auc(std::span<const double> scores, std::span<const std::int64_t> labels, std::span<const double> roundings = {});

// Share of equal ones.
double accuracy(std::span<const std::int64_t> predicted, std::span<const std::int64_t> labels);
// scores: [n, classes]; the first largest one is what is predicted.
std::vector<std::int64_t> argmax_rows(std::span<const double> scores, std::int64_t classes);

}  // namespace mpigrad
