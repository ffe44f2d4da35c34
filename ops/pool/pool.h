#ifndef MPIGRAD_OPS_POOL_POOL_H
#define MPIGRAD_OPS_POOL_POOL_H
// Pooling over windows of [N, D, H, W, C].

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"
#include "ops/extents.h"

namespace mpigrad {

struct PoolAttributes {
  Triple kernel = 1, stride = 1, dilation = 1, padding_low = 0, padding_high = 0;
  bool ceil_mode = false;  // counts a last, partial window too, also if it is the only one; none starts in the right padding
  bool count_include_pad = true;  // average pooling divides by the window inside the padded input, else by what is not padding
};

namespace local {
// D' = floor or ceil((D + low + high - dilation (kd - 1) - 1) / stride) + 1
Tensor avg_pool(const Tensor& x, const PoolAttributes& attributes);
// avg_pool(activation(x)). What stays of a fused activation for the replay is one bit for each element of x, its sign.
Tensor activated_avg_pool(const Tensor& x, Activation activation, const PoolAttributes& attributes);
// Padding never wins; the first of equal maxima takes the whole cotangent, as does the first NaN (see
// ops/elementwise/elementwise.h).
Tensor max_pool(const Tensor& x, const PoolAttributes& attributes);
}  // namespace local
// Value and place of the maximum in its window (row-major kernel index, int32, -1 for a window without elements).
std::pair<Tensor, Tensor> max_pool_with_winner(const Tensor& x, const PoolAttributes& attributes);
Extent3 pool_outputs(const Extent3& extent, const PoolAttributes& attributes);

}  // namespace mpigrad

#endif
