#pragma once
// A tensor as rows along its last dimension.

#include <cstdint>

#include "framework/tensor/tensor.h"

namespace mpigrad::ops {

struct RowExtents {
  std::int64_t count, length;
};
inline RowExtents rows_of(const Tensor& x) { return {x.shape().elements(0, x.rank() - 1), x.dim(-1)}; }

}  // namespace mpigrad::ops
