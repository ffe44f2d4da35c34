#pragma once
// Options of describe() and trace_step(), which find what a step costs without running it.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/optim/optimizer.h"
#include "models/nn/module.h"
#include "models/nn/pipeline.h"

namespace mpigrad {

// Like nn::LayerGrid, for ranks that need not exist.
struct LayerExtents {
  std::string layers;
  GridExtents grid;
  std::optional<nn::LayerSplit> split{};
};

struct DescribeOptions {
  GridExtents grid{};
  // See nn::BuildOptions.
  nn::LayerSplit split = ChannelSplit::filters;
  std::vector<LayerExtents> grids{};
  bool sharded_weights = false;
  // With grid.stage above 1: see nn::PipelineOptions. Each part of the batch is then a micro-batch.
  std::vector<std::string> boundaries{};
  nn::PipelineSchedule schedule = nn::PipelineSchedule::one_forward_one_backward;
  DType dtype = DType::float32;    // type of the input and of the parameters
  std::optional<DType> compute{};  // see nn::BuildOptions
  // Equal parts of the batch that are computed one after the other before the optimizer's step.
  std::int64_t accumulate = 1;
  // Makes the optimizer whose state is counted in the memory; none: no optimizer state.
  std::function<std::unique_ptr<Optimizer>(Parameters&)> optimizer{};
  // The objective of one part of the batch, recorded on a tape: this rank's partial sum. None: a sum of the network's results,
  // which costs next to nothing.
  std::function<Tensor(const Tensor& x)> objective{};
};

}  // namespace mpigrad
