#pragma once
// What came of trials, in a file that has every ended one, whenever the search ends and however.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "examples/studies/hpo/strategy.h"

namespace mpigrad::hpo {

// How a trial ended: `done` with a value; or without one, for a reason.
inline constexpr const char *done = "done", *crashed = "crashed", *diverged = "diverged", *hung = "hung";

struct Result {
  Task task{};
  std::string status{}, reason{};
  std::optional<double> value{};  // of the metric
  double seconds = 0;             // that it took
  double at = 0;                  // seconds of searching when it ended, earlier starts of the search included
};

// A CSV file: trial, bracket, rung, resource, the parameters, status, value, seconds, at, reason.
class Results {
 public:
  // Makes the file, or reads what is there. A last line without its end, of a process that was killed, is taken out. Error: it
  // is of other parameters, cannot be read or written.
  Results(const std::filesystem::path& path, const std::vector<std::string>& parameters);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  // The newest of each trial and rung, in the order in which they came.
  const std::vector<Result>& all() const { return all_; }
  // On the disk when it returns.
  void append(const Result& result, const Setting& setting);
  // For this process the failed ones have not been.
  void forget_failed();

 private:
  void take(const Result& result);
  void write(const std::string& text) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::vector<Result> all_{};
};

// A line of CSV in cells, with quotes where needed.
std::vector<std::string> cells_of(const std::string& line);
std::string line_of(const std::vector<std::string>& cells);

// The value of a trial: of the last row, or the best that is finite. Error: no such file, column or row, a value that is no
// number.
double read_metric(const std::filesystem::path& table, const Space& space);
// Whether what a trial printed last is about numbers that are not finite.
bool tells_of_divergence(const std::string& line);

}  // namespace mpigrad::hpo
