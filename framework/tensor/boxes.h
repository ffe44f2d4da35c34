#pragma once
// Boxes inside row-major tensors: loops on CPUs and GPUs that pack them one after the other, unpack and add them.

#include <array>
#include <cstddef>

#include "framework/tensor/layout.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::detail {

// A box inside a row-major array that covers `whole`.
struct BoxRegion {
  BoxRegion(const Box& whole, const Box& part);

  Shape extents;
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::int64_t offset = 0;  // of its first element
  bool contiguous = false;
};

// Copies the box to the packed buffer.
void pack_box(const BoxRegion& region, const Tensor& from, std::byte* packed);
// Copies a packed box into an array, or adds it.
void unpack_box(const BoxRegion& region, Tensor& to, const std::byte* packed, bool add);

}  // namespace mpigrad::detail
