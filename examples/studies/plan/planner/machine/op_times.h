#pragma once
// How long ops take: measured ones as they were measured, others between them, and without any measurement by what the device
// can do.

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

// "float32[2,8,8,8,4] float32[16,3,3,3,4] -": operands of an op, "-" for one that is left out.
std::string signature(const std::vector<TensorType>& types);

// Convolutions and products of matrices.
bool is_product(std::string_view op);

// What measured ops reach together of the device's peaks and bandwidth, without what launching them costs: efficiencies as Device
// has them, "other" left out, of each kind that was measured.
std::map<std::string, double> reached(const Device& device, const std::vector<MeasuredOp>& ops);

// What one event of a step costs. Sums of roofs: seconds = launch + max(flops / peak, bytes / bandwidth), with the device's
// efficiencies (Williams, Waterman and Patterson 2009).
struct OpCost {
  double seconds = 0;
  bool measured = false;   // on these very types
  bool estimated = false;  // without any measurement of this op
};

class OpTimes {
 public:
  // Of ops on the device as it is when `node_ranks` ranks of a node work at once; tf32: float32 products in that type.
  // Where nothing was measured with so many, what was with the number next to it counts. The machine outlives this.
  OpTimes(const Machine& machine, int node_ranks, bool tf32 = false);
  OpTimes(Machine&& machine, int node_ranks, bool tf32 = false) = delete;
  OpCost of(const StepEvent& event) const;
  double roof(const StepEvent& event) const { return roof(needs(event)); }
  // Seconds of an op's operations alone and of its bytes alone, and the roof of a share of both.
  struct Needs {
    double flops = 0, bytes = 0;
  };
  Needs needs(const StepEvent& event) const;
  double roof(const Needs& needs, double share = 1) const;

 private:
  struct Known {
    std::vector<double> place;  // logarithms of what the op's speed depends on
    double factor = 0;          // logarithm of measured over roof
  };
  const Machine& machine_;
  bool tf32_;
  std::map<std::string, double> exact_;
  std::map<std::string, std::vector<Known>> near_;  // by op and type
};

}  // namespace mpigrad::planner
