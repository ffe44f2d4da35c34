#pragma once
// Measures a machine on the ranks that call: ops one at a time with the shapes of a network, links, collectives, and the disk.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/studies/plan/planner/machine/machine.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

// Times each op of a traced step, once for each signature, on this thread's device. If all ranks of `world` do this at the same
// time, they share cores and memory as in training.
class OpMeasurement {
 public:
  struct Options {
    double seconds = 0.05;  // to spend on each op,
    int repeats = 3;        // but at least this often, after one run that is not counted
    double until = 1e300;   // a time of detail::seconds_now() after which no op is timed
  };
  explicit OpMeasurement(const Communicator& world) : OpMeasurement(world, Options{}) {}
  OpMeasurement(const Communicator& world, const Options& options);
  // For trace_step(). The timer refers to this object.
  OpTimer timer();
  // Measurements of this rank, in order of arrival.
  std::vector<MeasuredOp> ops() const { return ops_; }
  // Ops that cannot run on arbitrary elements, and were left out.
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

// Measures the optimizer's step, as op "update", for so many float32 parameters. Collective.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
MeasuredOp measure_update(const Communicator& world, std::int64_t elements, const MakeOptimizer& make);

// Fits seconds = latency + bytes * seconds_per_byte by least absolute relative deviations (Theil 1950 and Sen 1968: the median of
// the slopes between all pairs, then the median of the remainders). `residual` is the median of |fit - measured| / measured.
// Error: fewer than two sizes.
struct LinkFit {
  double latency = 0, seconds_per_byte = 0, residual = 0;
};
LinkFit fit_link(const std::vector<std::pair<double, double>>& bytes_and_seconds);

// Collective, on at least two ranks. On rank 0 returns "exchange" between ranks 0 and 1, and allreduce, allgather and
// reduce_scatter over all ranks; on other ranks nothing. Messages of up to `largest` bytes.
std::vector<MeasuredCall> measure_calls(const Communicator& world, std::int64_t largest = 1 << 26);

// Bytes per second to and from a file of this size in `folder`, written through to the disk; reads come from memory if the system
// still caches the file. Error: a file that cannot be written.
Disk measure_disk(const std::filesystem::path& folder, std::int64_t bytes = 1 << 26);

}  // namespace mpigrad::planner
