#pragma once
// Times of ops: as measured, interpolated between measurements, or without a measurement computed from the device's peaks.

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

// "float32[2,8,8,8,4] float32[16,3,3,3,4] -": operands of an op, "-" for a missing one.
std::string signature(const std::vector<TensorType>& types);

// Convolutions and products of matrices.
bool is_product(std::string_view op);

// The fractions of the device's peaks and bandwidth that the measured ops reach together, without the cost of launching:
// efficiencies as in Device, without "other", of each kind that was measured.
std::map<std::string, double> reached(const Device& device, const std::vector<MeasuredOp>& ops);

// The cost of one event of a step. A sum of rooflines: seconds = launch + max(flops / peak, bytes / bandwidth), with the device's
// efficiencies (Williams, Waterman and Patterson 2009).
struct OpCost {
  double seconds = 0;
  bool measured = false;   // measured with exactly these types
  bool estimated = false;  // there is no measurement of this op
};

class OpTimes {
 public:
  // Times of ops on the device while `node_ranks` ranks of a node work at once; tf32: float32 products in that type. Without
  // measurements for that number of ranks, those for the nearest number are used. The machine outlives this object.
  OpTimes(const Machine& machine, int node_ranks, bool tf32 = false);
  OpTimes(Machine&& machine, int node_ranks, bool tf32 = false) = delete;
  OpCost of(const StepEvent& event) const;
  double roof(const StepEvent& event) const { return roof(needs(event)); }
  // Seconds of an op's operations only and of its bytes only, and the roofline of a share of both.
  struct Needs {
    double flops = 0, bytes = 0;
  };
  Needs needs(const StepEvent& event) const;
  double roof(const Needs& needs, double share = 1) const;

 private:
  struct Known {
    std::vector<double> place;  // logarithms of the quantities that determine the op's speed
    double factor = 0;          // logarithm of measured time over roofline
  };
  const Machine& machine_;
  bool tf32_;
  // By name and operands: FLOPs and seconds. Transforms along one and along three dimensions have the same operands.
  std::map<std::string, std::vector<std::pair<double, double>>> exact_;
  std::map<std::string, std::vector<Known>> near_;  // by op and type
};

}  // namespace mpigrad::planner
