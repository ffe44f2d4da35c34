#pragma once
// Profiles of training steps, on every rank: a trace for the Perfetto viewer (https://ui.perfetto.dev) or Chrome's, and a table
// of the costliest ops compared with the peaks of the machine.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/cost.h"

namespace mpigrad {

struct ProfileOptions {
  std::int64_t first_step = 2, steps = 5;  // of this run; earlier steps make plans and fill caches
};

// Peaks of the machine in a short measurement, on this thread and its OpenMP threads: products of float32 matrices, and copies of
// memory that no cache holds.
struct MachinePeaks {
  double flops = 0, bytes = 0;  // per second; bytes read and written
};
MachinePeaks measure_peaks();

// The profile of a rank whose tensors are on the CPU: ops on a GPU continue after their call has returned. fit() calls it.
class StepProfile {
 public:
  StepProfile(const Communicator& world, const ProfileOptions& options = {});
  ~StepProfile();

  // fit() calls begin_step() and end_step() around each step, in which ops on this thread are recorded, and waited_for_data()
  // after each wait for its batch.
  void begin_step();
  void end_step();
  void waited_for_data(double seconds);
  bool complete() const;  // true when all requested steps are recorded

  // Writes the trace of all ranks in the trace event format (a process for each rank, lanes for compute, communication, data
  // and the waiting of a pipeline's stage) and returns a table, on rank 0. Collective. Error, on all ranks: the file cannot be
  // written.
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
  std::optional<MachinePeaks> peaks_;  // measured once, at the first write()
};

}  // namespace mpigrad
