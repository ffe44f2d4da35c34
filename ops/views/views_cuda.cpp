#include "ops/kernel/absent.h"
#include "ops/views/resample.h"
#include "ops/views/views.h"

#ifdef MPIGRAD_HAS_KERNELS
#include <bit>

#include "ops/kernel/gpu_tensors.h"
#include "ops/views/index_cuda_kernels.h"
#include "ops/views/strided_boxes.h"

namespace mpigrad::ops {

namespace {

// Moves `extents` elements between two strided places.
void move(const Shape& extents, const Tensor& from, std::int64_t from_offset, const Strides& from_strides, Tensor& to,
          std::int64_t to_offset, const Strides& to_strides) {
  const auto item = size_of(from.dtype());
  cuda::copy_strided(to.raw() + to_offset * item, from.raw() + from_offset * item, item,
                     walk_of(extents, to_strides, from_strides), cuda::compute_stream());
}

}  // namespace

void Permute::run(Cuda, Inputs in, Outputs out) const {
  move(out[0].shape(), in[0], 0, permuted(in[0].shape(), order).strides, out[0], 0, out[0].shape().strides());
}

void Slice::run(Cuda, Inputs in, Outputs out) const {
  if (out[0].elements() == 0) return;
  const auto box = box_of(in[0].shape(), begin, step);
  move(out[0].shape(), in[0], box.offset, box.strides, out[0], 0, out[0].shape().strides());
}

void SlicePut::run(Cuda device, Inputs in, Outputs out) const {
  if (is_complex(in[0].dtype())) {
    const Tensor x = detail::as_numbers(in[0]);
    Tensor y = detail::as_numbers(out[0]);
    return of_parts().run(device, {&x, 1}, {&y, 1});
  }
  visit_any(in[0].dtype(), [&](auto zero) {
    const auto fill = static_cast<decltype(zero)>(value);
    cuda::fill(out[0].raw(), out[0].elements(), size_of(in[0].dtype()), &fill);
  });
  if (in[0].elements() == 0) return;
  const auto box = box_of(shape, begin, step);
  move(in[0].shape(), in[0], 0, in[0].shape().strides(), out[0], box.offset, box.strides);
}

void Concatenate::run(Cuda, Inputs in, Outputs out) const {
  const auto strides = out[0].shape().strides();
  std::int64_t at = 0;
  for (const auto& x : in) {
    move(x.shape(), x, 0, x.shape().strides(), out[0], at * strides[static_cast<std::size_t>(axis)], strides);
    at += x.dim(axis);
  }
}

void Flip::run(Cuda, Inputs in, Outputs out) const {
  if (in[0].elements() == 0) return;
  const auto& shape = in[0].shape();
  const auto box = flipped(shape, axes);
  move(shape, in[0], box.offset, box.strides, out[0], 0, shape.strides());
}

void Take::run(Cuda, Inputs in, Outputs out) const {
  visit_width(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::take(in[1].dim(0), in[0].dim(0), in[0].shape().elements(1, in[0].rank()), read<T>(in[0]), read<std::int64_t>(in[1]),
               written<T>(out[0]), cuda::fault_record(), cuda::compute_stream());
  });
}

void ScatterAdd::run(Cuda, Inputs in, Outputs out) const {
  const auto count = in[0].dim(0);
  Tensor work = scratch(cuda::scatter_scratch(count, rows), DType::int64);
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::scatter_add(count, rows, in[0].shape().elements(1, in[0].rank()), read<T>(in[0]), read<std::int64_t>(in[1]),
                      written<std::int64_t>(work), written<T>(out[0]), cuda::fault_record(), cuda::compute_stream());
  });
}

void OneHot::run(Cuda, Inputs in, Outputs out) const {
  visit_any_integral(in[0].dtype(), [&](auto from) {
    using I = decltype(from);
    visit_any(dtype, [&](auto zero) {
      using T = decltype(zero);
      const T one(1);
      visit_width(dtype, [&](auto bits) {
        using U = decltype(bits);
        if constexpr (sizeof(U) == sizeof(T))
          cuda::one_hot(in[0].elements(), classes, read<I>(in[0]), std::bit_cast<U>(one), written<U>(out[0]),
                        cuda::compute_stream());
      });
    });
  });
}

void MapLines::run(Cuda, Inputs in, Outputs out) const {
  const auto& shape = in[0].shape();
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::map_lines({.outer = shape.elements(0, axis),
                     .n = shape[axis],
                     .rows = matrix().rows,
                     .inner = shape.elements(axis + 1, shape.rank()),
                     .first = read<std::int64_t>(matrix().first),
                     .index = read<std::int64_t>(matrix().index),
                     .weight = read<double>(matrix().weight)},
                    read<T>(in[0]), written<T>(out[0]), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(Permute)
MPIGRAD_ABSENT(Slice)
MPIGRAD_ABSENT(SlicePut)
MPIGRAD_ABSENT(Concatenate)
MPIGRAD_ABSENT(Flip)
MPIGRAD_ABSENT(Take)
MPIGRAD_ABSENT(ScatterAdd)
MPIGRAD_ABSENT(OneHot)
MPIGRAD_ABSENT(MapLines)

}  // namespace mpigrad::ops
#endif
