#pragma once
// Between tensors and kernels: pointers, element widths.

#include <cstdint>
#include <span>

#include "framework/cuda/cuda.h"
#include "framework/op.h"
#include "ops/broadcast.h"

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

// Calls f with a value of an unsigned integer as wide as the elements: moving needs no arithmetic.
template <class F>
void visit_width(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8: return f(std::uint64_t{});
    case 4: return f(std::uint32_t{});
    case 2: return f(std::uint16_t{});
    default: return f(std::uint8_t{});
  }
}

// Memory for a kernel, of the compute stream.
inline Tensor scratch(std::int64_t elements, DType dtype) { return Tensor({Shape{elements}, dtype}, DeviceKind::cuda); }

}  // namespace mpigrad::ops
