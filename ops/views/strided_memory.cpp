#include "ops/views/strided_memory.h"

#include <algorithm>
#include <cstdlib>

#include "framework/base/joined.h"
#include "framework/cuda/cuda.h"
#include "framework/tensor/visit_width.h"
#include "ops/elementwise/broadcast.h"
#include "ops/views/strided_boxes.h"

namespace mpigrad {
namespace {

using Strides = std::array<std::int64_t, Shape::max_rank>;

Strides checked_strides(std::string_view reader, const void* memory, const TensorType& type,
                        const std::vector<std::int64_t>& strides) {
  detail::require_memory(reader, memory, type);
  require(static_cast<int>(strides.size()) == type.shape.rank(), "[{}] {} strides for {} {}: one for each dimension", reader,
          strides.size(), name_of(type.dtype), type.shape);
  Strides result{};
  std::copy(strides.begin(), strides.end(), result.begin());
  return result;
}

// Whether each element has a place of its own: the strides, sorted by size, step over all that the smaller ones reach.
bool apart(const Shape& shape, const Strides& strides) {
  if (shape.elements() == 0) return true;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d] > 1) steps.emplace_back(std::abs(strides[static_cast<std::size_t>(d)]), shape[d]);
  std::sort(steps.begin(), steps.end());
  std::int64_t reached = 0;
  for (const auto& [stride, extent] : steps) {
    if (stride <= reached) return false;
    reached += stride * (extent - 1);
  }
  return true;
}

void move(const TensorType& type, DeviceKind device, const void* from, const Strides& from_strides, void* to,
          const Strides& to_strides) {
  if (type.shape.elements() == 0) return;
  if (device == DeviceKind::cuda) {
    cuda::copy_strided(to, from, size_of(type.dtype), walk_of(type.shape, to_strides, from_strides), cuda::compute_stream());
    return cuda::synchronise(cuda::compute_stream());
  }
  visit_width(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    ops::move_elements(type.shape, static_cast<const T*>(from), from_strides, static_cast<T*>(to), to_strides);
  });
}

}  // namespace

Tensor from_strided(const void* memory, const Shape& shape, const std::vector<std::int64_t>& strides, DType dtype,
                    DeviceKind device) {
  const auto from = checked_strides("from_strided", memory, {shape, dtype}, strides);
  require(device != DeviceKind::dry, "[from_strided] the dry device has no memory: {} {}", name_of(dtype), shape);
  Tensor result({shape, dtype}, device);
  move(result.type(), device, memory, from, result.raw(), shape.strides());
  return result;
}

void to_strided(const Tensor& x, void* memory, const std::vector<std::int64_t>& strides) {
  require(static_cast<bool>(x), "[to_strided] this is no tensor");
  const auto to = checked_strides("to_strided", memory, x.type(), strides);
  require(x.device() != DeviceKind::dry, "[to_strided] the dry device has no elements to copy: {}", x);
  require(apart(x.shape(), to), "[to_strided] with the strides {} two elements may share a place: {}", joined(strides, ", "), x);
  if (!x.storage()) detail::refuse_unkept("to_strided", "the elements of this tensor", x);
  detail::warn_if_partial("to_strided", x);
  move(x.type(), x.device(), x.raw(), x.shape().strides(), memory, to);
}

}  // namespace mpigrad
