#include "framework/tensor/boxes.h"

#include <cstring>
#include <utility>

#include "framework/cuda/cuda.h"

namespace mpigrad::detail {

BoxRegion::BoxRegion(const Box& whole, const Box& part) : extents(part.extents()) {
  const auto shape = whole.extents();
  strides = shape.strides();
  for (int d = 0; d < shape.rank(); ++d) offset += (part.begin[d] - whole.begin[d]) * strides[static_cast<std::size_t>(d)];
  // Contiguous if, from some dimension on, all dimensions are complete, and all dimensions before have extent 1.
  int d = shape.rank() - 1;
  while (d >= 0 && extents[d] == shape[d]) --d;
  contiguous = true;
  for (--d; d >= 0; --d) contiguous = contiguous && extents[d] == 1;
}

namespace {

// f(offset of a row in the array, offset of the row when packed, length)
template <class F>
void for_each_row(const BoxRegion& region, const F& f) {
  const auto& extents = region.extents;
  const auto& strides = region.strides;
  const std::int64_t length = extents.rank() ? extents.back() : 1;
  const std::int64_t rows = length ? extents.elements() / length : 0;
  // Rows of whole trailing dimensions are merged into longer ones.
  std::int64_t merged = length;
  int last = extents.rank() - 1;
  while (last > 0 && strides[static_cast<std::size_t>(last - 1)] == merged) merged *= extents[--last];
  const std::int64_t count = merged ? rows * length / merged : 0;
#pragma omp parallel for if (rows * length > 65536) schedule(static)
  for (std::int64_t r = 0; r < count; ++r) {
    std::int64_t at = region.offset, rest = r;
    for (int d = last - 1; d >= 0; --d) {
      at += rest % region.extents[d] * region.strides[static_cast<std::size_t>(d)];
      rest /= region.extents[d];
    }
    f(at, r * merged, merged);
  }
}

// Walks the region's elements in the array (first) and packed one after the other (second).
StridedArrays<2> against_packed(const BoxRegion& region) {
  const auto packed = region.extents.strides();
  StridedArrays<2> walk;
  for (int d = 0; d < region.extents.rank(); ++d)
    walk.add(region.extents[d], {region.strides[static_cast<std::size_t>(d)], packed[static_cast<std::size_t>(d)]});
  return walk;
}

template <class T>
void add_into(T* to, const T* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + from[i]);
}

}  // namespace

void pack_box(const BoxRegion& region, const Tensor& from, std::byte* packed) {
  const auto item = size_of(from.dtype());
  if (from.device() == DeviceKind::cuda) {
    auto walk = against_packed(region);
    std::swap(walk.strides[0], walk.strides[1]);
    return cuda::copy_strided(packed, from.raw() + region.offset * item, item, walk, cuda::compute_stream());
  }
  const std::byte* base = from.raw();
  for_each_row(region, [&](std::int64_t at, std::int64_t into, std::int64_t n) {
    std::memcpy(packed + into * item, base + at * item, static_cast<std::size_t>(n * item));
  });
}

void unpack_box(const BoxRegion& region, Tensor& to, const std::byte* packed, bool add) {
  const auto item = size_of(to.dtype());
  if (add && is_complex(to.dtype())) {  // as real numbers with one more dimension
    const auto with_parts = [](Shape shape) {
      shape.push_back(2);
      return shape;
    };
    BoxRegion parts = region;
    parts.extents = with_parts(region.extents);
    parts.offset *= 2;
    for (auto& stride : parts.strides) stride *= 2;
    parts.strides[static_cast<std::size_t>(region.extents.rank())] = 1;
    Tensor numbers({with_parts(to.shape()), real_type(to.dtype())}, to.storage(), to.offset());
    return unpack_box(parts, numbers, packed, true);
  }
  if (to.device() == DeviceKind::cuda) {
    auto* first = to.raw() + region.offset * item;
    if (add) return cuda::add_strided(first, packed, to.dtype(), against_packed(region), cuda::compute_stream());
    return cuda::copy_strided(first, packed, item, against_packed(region), cuda::compute_stream());
  }
  if (!add) {
    std::byte* base = to.raw();
    for_each_row(region, [&](std::int64_t at, std::int64_t from, std::int64_t n) {
      std::memcpy(base + at * item, packed + from * item, static_cast<std::size_t>(n * item));
    });
    return;
  }
  visit_any_arithmetic(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* base = to.mutable_data<T>();
    const T* values = reinterpret_cast<const T*>(packed);
    for_each_row(region, [&](std::int64_t at, std::int64_t from, std::int64_t n) { add_into(base + at, values + from, n); });
  });
}

}  // namespace mpigrad::detail
