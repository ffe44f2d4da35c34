#pragma once
// Access of GPU kernels to tensors: pointers, element widths.

#include <cstdint>
#include <span>

#include "framework/cuda/cuda.h"
#include "framework/engine/op.h"
#include "framework/tensor/visit_width.h"
#include "ops/elementwise/broadcast.h"

namespace mpigrad::ops {

template <class T>
const T* read(const Tensor& x) {
  return reinterpret_cast<const T*>(x.raw());
}
template <class T>
T* written(Tensor& x) {
  return reinterpret_cast<T*>(x.raw());
}

using Strides = std::array<std::int64_t, Shape::max_rank>;

// Memory for a kernel, allocated on the compute stream.
inline Tensor scratch(std::int64_t elements, DType dtype) { return Tensor({Shape{elements}, dtype}, DeviceKind::cuda); }

}  // namespace mpigrad::ops
