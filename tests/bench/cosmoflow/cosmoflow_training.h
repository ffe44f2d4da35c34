#pragma once
// CosmoFlow training steps as a user writes them, with the time of every op, for comparison with the floor.

#include <memory>
#include <string>
#include <vector>

#include "framework/engine/cost.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"

namespace mpigrad::bench {

struct StepTimes {
  double step = 0, forward = 0, backward = 0, optimizer = 0;
  double loss = 0;                 // the sum over ranks; computed after the time of the step
  std::vector<CostLog::Line> ops;  // in program order: forward, then backward
};

// Hybrid variant, batch 1, Adam. `grid` and `layers` are the trainer's keys grid.extents and grid.layers, on the ranks of the
// session. Layers compute in `precision`, float32 or bfloat16; parameters are float32.
class CosmoFlowTraining {
 public:
  CosmoFlowTraining(const Session& session, const std::string& grid, const std::vector<std::string>& layers, std::int64_t width,
                    const std::string& precision = "float32");
  // Runs one step on all ranks; times are this rank's.
  StepTimes step();

 private:
  Communicator world_;
  CosmoFlow net_;
  std::unique_ptr<Adam> adam_;
  Tensor x_, y_;
  std::int64_t steps_ = 0;
};

// Operations of the convolutions in this step; 2 for each product and sum.
double flops_of_convolutions(const StepTimes& times);
double median(std::vector<double> values);
// The step with the median total time.
StepTimes median_step(std::vector<StepTimes> steps);

}  // namespace mpigrad::bench
