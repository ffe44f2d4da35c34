#pragma once
// Metrics: CSV tables, means, scores. Works on numbers of one rank; gather distributed values first.

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

// A number or a text of a table; numbers are written so that reading them gives the same values.
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

// Comma-separated values as in RFC 4180 (but lines end in \n). The constructor writes the header; a row has been passed to the
// operating system when row() returns.
class CsvWriter {
 public:
  // The file gets its name when the header and the rows `earlier` are written; an older file of that name stays until then.
  // Errors: the file exists and `overwrite` is false; it cannot be written.
  CsvWriter(const std::filesystem::path& path, std::vector<std::string> columns, bool overwrite = false,
            const std::vector<std::vector<CsvCell>>& earlier = {});
  // Errors: the number of cells is not that of the columns; the disk is full.
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

// Outputs of the same network for the same sample differ between batches of different sizes and between grids, because different
// kernels sum in different orders. Outputs whose relative difference is less than this count as equal.
inline constexpr double rounding_of_outputs = 0x1p-16;

// Scores of one target.
struct RegressionScore {
  double mse = 0, mae = 0;            // of the predictions
  double mean_mse = 0, mean_mae = 0;  // of predicting `mean` for every sample
  double mean = 0;
  double correlation = 0;  // Pearson's; 0 if one of the two varies only by rounding
};
// predicted, truth: [n, targets], row-major. `means`: the prediction of the constant predictor for each target, such as the mean
// over the training set; empty: the means of `truth`.
std::vector<RegressionScore> regression_scores(std::span<const double> predicted, std::span<const double> truth,
                                               std::int64_t targets, std::span<const double> means = {});

// Area under the receiver operating characteristic: the chance that a positive has a higher score than a negative, ties counting
// one half (Mann and Whitney 1947). `roundings`: the possible error of each score; two scores tie if they differ by no more than
// the sum of their roundings. Empty: only equal scores tie. Errors: only one class, a score that is not a number.
double roc_auc(std::span<const double> scores, std::span<const std::int64_t> labels, std::span<const double> roundings = {});

// Fraction of equal labels.
double accuracy(std::span<const std::int64_t> predicted, std::span<const std::int64_t> labels);
// scores: [n, classes]; returns the index of the first largest score of each row.
std::vector<std::int64_t> argmax_rows(std::span<const double> scores, std::int64_t classes);

}  // namespace mpigrad
