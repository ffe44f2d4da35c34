#ifndef MPIGRAD_OPS_POOL_POOL_H
#define MPIGRAD_OPS_POOL_POOL_H
// Pooling over windows of [N, D, H, W, C].

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"
#include "ops/extents.h"

namespace mpigrad {

struct PoolAttributes {
  Triple kernel = 1, stride = 1, dilation = 1;
  Padding padding = 0;     // mode zeros: padding adds nothing to a sum and is never the maximum; count_include_pad says whether
                           // an average counts it; other modes: the pooling of pad(x, padding), ops/array/padding.h, so an
                           // average counts the copies
  bool ceil_mode = false;  // adds a last, partial window, even if it is the only one; no window starts in the right padding
  bool count_include_pad = true;  // true: divide by the size of the window inside the padded input; false: by its elements that
                                  // are not padding
};

namespace local {
// D' = floor or ceil((D + low + high - dilation (kd - 1) - 1) / stride) + 1
Tensor avg_pool(const Tensor& x, const PoolAttributes& attributes);
// avg_pool(activation(x)). For a fused activation the tape keeps one bit per element of x, its sign.
Tensor activated_avg_pool(const Tensor& x, Activation activation, const PoolAttributes& attributes);
// Padding never wins; the first of equal maxima takes the whole cotangent, as does the first NaN (see
// ops/elementwise/elementwise.h).
Tensor max_pool(const Tensor& x, const PoolAttributes& attributes);
}  // namespace local
// Value and position of the maximum in its window (row-major kernel index, int32, -1 for a window without elements).
std::pair<Tensor, Tensor> max_pool_with_winner(const Tensor& x, const PoolAttributes& attributes);
Extent3 pool_outputs(const Extent3& extent, const PoolAttributes& attributes);

}  // namespace mpigrad

#endif
