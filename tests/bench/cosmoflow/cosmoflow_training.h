#pragma once
// CosmoFlow training steps as a user writes them, with the time of every op, for comparison with the floor.

#include <memory>
#include <vector>

#include "framework/engine/cost.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"

namespace mpigrad::bench {

struct StepTimes {
  double step = 0, forward = 0, backward = 0, optimizer = 0;
  std::vector<CostLog::Line> ops;  // in program order: forward, then backward
};

// Hybrid variant, batch 1, float32, Adam; the volume is split over the ranks of the session by `extents`.
class CosmoFlowTraining {
 public:
  CosmoFlowTraining(const Session& session, const GridExtents& extents, std::int64_t width);
  // Runs one step on all ranks; times are this rank's.
  StepTimes step();

 private:
  CosmoFlow net_;
  std::unique_ptr<Adam> adam_;
  Tensor x_, y_;
  std::int64_t steps_ = 0;
};

double median(std::vector<double> values);
// The step with the median total time.
StepTimes median_step(std::vector<StepTimes> steps);

}  // namespace mpigrad::bench
