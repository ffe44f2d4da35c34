#pragma once
// Shows the progress of a training: on a terminal one line that is redrawn,
//
//   epoch  3/10 [=========>          ]  23/48  loss 0.1234  85.3 samples/s  0:41 left
// elsewhere a line every `line_seconds` and one at the end of each epoch. Only rank 0 prints.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "models/train/metrics.h"

namespace mpigrad {

struct ProgressOptions {
  int rank = 0;
  bool quiet = false;
  std::FILE* stream = stderr;
  std::optional<bool> terminal{};  // none: ask the stream
  double redraw_seconds = 0.1;     // on a terminal
  double line_seconds = 30;        // elsewhere, within an epoch
};

class Progress {
 public:
  Progress(std::int64_t epochs, std::int64_t steps_per_epoch, const ProgressOptions& options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `epoch` counts from 0; an earlier run may have made `steps_behind` of its steps.
  void begin_epoch(std::int64_t epoch, std::int64_t steps_behind = 0);
  // One step with `samples` samples and their mean loss has ended.
  void step(std::int64_t samples, double loss);
  // Closes the epoch's line with `text`, such as "validation 0.123".
  void end_epoch(const std::string& text = "");
  // Prints a line above the one that is redrawn.
  void print(const std::string& line);

  double loss() const { return loss_.mean(); }  // mean over this epoch so far
  double samples_per_second() const;            // of this epoch
  double seconds_left() const;                  // of all epochs

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(bool bar) const;
  void redraw();
  void clear();

  std::int64_t epochs_, steps_, epoch_ = 0, step_ = 0, done_ = 0, first_ = -1;  // first_: done before this run
  ProgressOptions options_;
  bool shown_, terminal_, drawn_ = false;
  RunningMean loss_;
  double samples_ = 0;
  Clock::time_point start_, epoch_start_, last_;
};

// "0:41", "12:05", "3:02:00"
std::string format_duration(double seconds);

}  // namespace mpigrad
