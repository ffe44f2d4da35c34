#pragma once
// Upsampling (and sampling down) by interpolation, on plain tensors and on distributed ones.

#include "ops/extents.h"
#include "ops/views/resample.h"

namespace mpigrad {

// [N, D, H, W, C] -> [N, D', H', W', C] with the global extents that are asked for, of any ratio, smaller ones included; linear
// is trilinear. An output belongs to the rank that owns its nearest input, so that ranks exchange a plane at most where nothing
// shrinks.
Tensor upsample(const Tensor& x, const Extent3& extents, Interpolation mode = Interpolation::nearest);
// To floor(extent * factor) places; factors are positive.
Tensor upsample_by(const Tensor& x, const std::array<double, 3>& factors, Interpolation mode = Interpolation::nearest);

}  // namespace mpigrad
