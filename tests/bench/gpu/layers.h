#pragma once
// The convolutions of CosmoFlow and the 3D U-Net one by one: bare calls of cuDNN, and our calls on the same operands.

#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "models/networks/cosmoflow.h"
#include "ops/kernel/problems.h"

namespace mpigrad::bench {

struct ConvLayer {
  std::string name;
  kernel::ConvProblem problem;
  bool needs_data_pass = true;  // false for the first layer, which needs no gradient of the volume
};
// For an input [batch, width, width, width, 4].
std::vector<ConvLayer> convolutions_of(CosmoFlowVariant variant, std::int64_t width, std::int64_t batch);
// For MLPerf's 3D U-Net on [batch, width, width, width, 1]. A transposed convolution is described by its adjoint: its forward
// pass is the data pass of that convolution.
std::vector<ConvLayer> convolutions_of_unet(std::int64_t width, std::int64_t batch);

// Seconds, each the best of a few rounds of consecutive calls.
struct PassTimes {
  double bare = 0;        // the fastest of cuDNN's plans, with operands in its preferred layout
  double ours = 0;        // with all additional work
  double activation = 0;  // forward only: ours with LeakyReLU
};
struct ConvTimes {
  PassTimes forward, data, weight;
  double bare() const { return forward.bare + data.bare + weight.bare; }
  double ours() const { return forward.ours + data.ours + weight.ours; }
};
// Uses the settings of ops/gpu_settings.h. Throws if cuDNN has no plan.
ConvTimes time_layer(const ConvLayer& layer, DType type);

}  // namespace mpigrad::bench
