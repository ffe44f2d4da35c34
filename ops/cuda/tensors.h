#pragma once
// Between tensors and kernels: pointers, walks, element widths.

#include <cstdint>
#include <span>

#include "framework/cuda/cuda.h"
#include "framework/op.h"
#include "framework/tensor/strided.h"

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

template <class... S>
StridedArrays<static_cast<int>(sizeof...(S))> walk_of(const Shape& shape, const S&... strides) {
  StridedArrays<static_cast<int>(sizeof...(S))> result;
  for (int d = 0; d < shape.rank(); ++d) result.add(shape[d], {strides[static_cast<std::size_t>(d)]...});
  return result;
}

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
