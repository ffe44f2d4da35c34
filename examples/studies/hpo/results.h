#pragma once
// The results of trials, in a file that has every ended trial, whenever and however the search ends.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "examples/studies/hpo/strategy.h"

namespace mpigrad::hpo {

// How a trial ended: `done` with a value, or without one for a reason.
inline constexpr const char *done = "done", *crashed = "crashed", *diverged = "diverged", *hung = "hung";

struct Result {
  Task task{};
  std::string status{}, reason{};
  std::optional<double> value{};  // of the metric; none: failed
  double seconds = 0;             // duration
  double at = 0;                  // seconds of searching until its end, with earlier starts of the search
};

// A CSV file: trial, bracket, rung, resource, the parameters, status, value, seconds, at, reason.
class Results {
 public:
  // Makes the file, or reads an existing one. An incomplete last line, left by a process that was killed, is removed. Error: the
  // file has other parameters, or cannot be read or written.
  Results(const std::filesystem::path& path, const std::vector<std::string>& parameters);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  // The newest result of each trial and rung, in order of arrival.
  const std::vector<Result>& all() const { return all_; }
  // The result is on the disk when it returns.
  void append(const Result& result, const Setting& setting);
  // Forgets failed trials, in this process only.
  void forget_failed();

 private:
  void take(const Result& result);
  void write(const std::string& text) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::vector<Result> all_{};
};

// Splits a line of CSV into cells, some of them quoted.
std::vector<std::string> cells_of(const std::string& line);
std::string line_of(const std::vector<std::string>& cells);

// The value of a trial: that of the last row, or the best finite one. Error: no such file, column or row; a value that is not a
// number.
double read_metric(const std::filesystem::path& table, const Space& space);
// True if the last line printed by a trial is about numbers that are not finite.
bool tells_of_divergence(const std::string& line);

}  // namespace mpigrad::hpo
