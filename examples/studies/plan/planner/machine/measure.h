#pragma once
// What a machine can do, measured on the ranks that call: ops one at a time on the shapes that a network has for them, links,
// collectives, and the disk.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/studies/plan/planner/machine/machine.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

// Times each op of a traced step, once for each signature, on this thread's device. Where all ranks of `world` do this at the
// same time, they have the share of cores and memory that they have in training.
class OpMeasurement {
 public:
  struct Options {
    double seconds = 0.05;  // to spend on each op, and
    int repeats = 3;        // at least so many, behind one that is not counted
    double until = 1e300;   // of detail::seconds_now(): ops that come later are not timed
  };
  explicit OpMeasurement(const Communicator& world) : OpMeasurement(world, Options{}) {}
  OpMeasurement(const Communicator& world, const Options& options);
  // For trace_step(). Refers to this object.
  OpTimer timer();
  // Of this rank, in the order in which they came.
  std::vector<MeasuredOp> ops() const { return ops_; }
  // Ops that do not run on arbitrary elements, and were left out.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  double time(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out);
  Communicator world_;
  Options o_;
  DeviceKind device_;
  std::map<std::string, double> known_;
  std::vector<MeasuredOp> ops_;
  std::vector<std::string> left_out_;
};

// The optimizer's step, as op "update", of so many float32 parameters. Collective.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
MeasuredOp measure_update(const Communicator& world, std::int64_t elements, const MakeOptimizer& make);

// seconds = latency + bytes * seconds_per_byte, by least absolute relative deviations (Theil 1950 and Sen 1968: the median of the
// slopes between all pairs, then of what is left). `residual` is the median of |fit - measured| / measured. Error: fewer than two
// sizes.
struct LinkFit {
  double latency = 0, seconds_per_byte = 0, residual = 0;
};
LinkFit fit_link(const std::vector<std::pair<double, double>>& bytes_and_seconds);

// Collective, of at least two ranks; on rank 0 "exchange" between ranks 0 and 1, and allreduce, allgather and reduce_scatter over
// all, on the others nothing. Messages of up to `largest` bytes.
std::vector<MeasuredCall> measure_calls(const Communicator& world, std::int64_t largest = 1 << 26);

// Bytes per second, to and from a file of this size in `folder`, written through to the disk; reading is from memory where the
// system still has the file. Error: a file that cannot be written.
Disk measure_disk(const std::filesystem::path& folder, std::int64_t bytes = 1 << 26);

}  // namespace mpigrad::planner
