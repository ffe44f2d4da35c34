#pragma once
// Upsampling, downsampling and adaptive pooling of plain and of distributed tensors.

#include "ops/extents.h"
#include "ops/views/resample.h"

namespace mpigrad {

// [N, D, H, W, C] -> [N, D', H', W', C] with the given global extents, of any ratio, smaller ones included; linear is trilinear.
// An output belongs to the rank that owns its nearest input, so that ranks exchange at most one plane where no extent shrinks.
Tensor upsample(const Tensor& x, const Extent3& extents, Interpolation mode = Interpolation::nearest);
// The same with extents floor(extent * factor); factors are positive.
Tensor upsample_by(const Tensor& x, const std::array<double, 3>& factors, Interpolation mode = Interpolation::nearest);

// Pooling [N, D, H, W, C] -> [N, D', H', W', C] with the given global extents. As in PyTorch, output o of m reads the inputs
// [floor(o n / m), ceil((o + 1) n / m)) of n; windows may overlap, and there may be more outputs than inputs. The cotangent of a
// maximum goes to the first element of its window that attains it, or to the first NaN.
inline Tensor adaptive_avg_pool(const Tensor& x, const Extent3& extents) { return upsample(x, extents, Interpolation::area); }
Tensor adaptive_max_pool(const Tensor& x, const Extent3& extents);

}  // namespace mpigrad
