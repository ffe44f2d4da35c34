#pragma once
// The convolutions of CosmoFlow and the 3D U-Net one by one: cuDNN's bare calls, and ours on the same operands.

#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "models/networks/cosmoflow.h"
#include "ops/kernel/problems.h"

namespace mpigrad::bench {

struct ConvLayer {
  std::string name;
  kernel::ConvProblem problem;
  bool needs_data_pass = true;  // not of the first: nobody asks for the volume's gradient
};
// Of a [batch, width, width, width, 4] input.
std::vector<ConvLayer> convolutions_of(CosmoFlowVariant variant, std::int64_t width, std::int64_t batch);
// Of MLPerf's 3D U-Net on [batch, width, width, width, 1]. A transposed convolution is the one that it is the adjoint of: its
// forward pass is that one's data pass.
std::vector<ConvLayer> convolutions_of_unet(std::int64_t width, std::int64_t batch);

// Seconds, each the best of a few rounds of calls one behind the other.
struct PassTimes {
  double bare = 0;        // the fastest of cuDNN's plans, called on operands in the layout that it likes best
  double ours = 0;        // with all that is done around it
  double activation = 0;  // forward only: ours with LeakyReLU
};
struct ConvTimes {
  PassTimes forward, data, weight;
  double bare() const { return forward.bare + data.bare + weight.bare; }
  double ours() const { return forward.ours + data.ours + weight.ours; }
};
// With the settings of ops/gpu_settings.h. Throws where cuDNN has no plan.
ConvTimes time_layer(const ConvLayer& layer, DType type);

}  // namespace mpigrad::bench
