#pragma once
// Where the time of training steps goes, on every rank: a trace for the Perfetto viewer (https://ui.perfetto.dev) or Chrome's,
// and a table of the costliest ops beside what the machine can do.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/cost.h"

namespace mpigrad {

struct ProfileOptions {
  std::int64_t first_step = 2, steps = 5;  // of this run; the first ones make plans and fill caches
};

// What the machine reached in a moment, on this thread and its helpers: products of float32 matrices, and copies of memory that
// no cache holds.
struct MachinePeaks {
  double flops = 0, bytes = 0;  // per second; bytes read and written
};
MachinePeaks measure_peaks();

// Of a rank whose tensors are on the CPU: ops of a GPU go on when their call has returned. fit() tells it what happens.
class StepProfile {
 public:
  StepProfile(const Communicator& world, const ProfileOptions& options = {});
  ~StepProfile();

  // Around each step, in whose time ops on this thread are recorded, and behind each wait for its batch.
  void begin_step();
  void end_step();
  void waited_for_data(double seconds);
  bool complete() const;  // all steps that were asked for

  // Writes the trace of all ranks in the trace event format (a process for each rank, lanes for compute, communication and data)
  // and returns a table, on rank 0. Collective. Error, on all ranks: the file cannot be written.
  std::string write(const std::filesystem::path& path);

 private:
  struct Span {
    std::string name;
    int lane = 0;
    double start = 0, seconds = 0, flops = 0, bytes = 0;
  };
  bool recording() const;

  Communicator world_;
  ProfileOptions o_;
  std::int64_t step_ = 0;
  double origin_ = 0, began_ = 0;
  std::optional<CostLog> log_;
  std::vector<Span> spans_;
  std::optional<MachinePeaks> peaks_;  // measured once, when they are first written
};

}  // namespace mpigrad
