#include "ops/views/views.h"

#include <algorithm>
#include <cstring>

#include "framework/tensor/strided.h"
#include "framework/tensor/visit_width.h"
#include "ops/kernel/parts.h"
#include "ops/views/resample.h"
#include "ops/views/strided_boxes.h"

namespace mpigrad::ops {
namespace {

template <class T>
T* pointer(const Tensor& x) {
  return reinterpret_cast<T*>(x.raw());
}

}  // namespace

void Permute::run(Cpu, Inputs in, Outputs out) const {
  visit_width(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    move_elements(out[0].shape(), pointer<const T>(in[0]), permuted(in[0].shape(), order).strides, pointer<T>(out[0]),
                  out[0].shape().strides());
  });
}

void Slice::run(Cpu, Inputs in, Outputs out) const {
  if (out[0].elements() == 0) return;
  visit_width(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto box = box_of(in[0].shape(), begin, step);
    move_elements(out[0].shape(), pointer<const T>(in[0]) + box.offset, box.strides, pointer<T>(out[0]),
                  out[0].shape().strides());
  });
}

void SlicePut::run(Cpu, Inputs in, Outputs out) const {
  if (is_complex(in[0].dtype())) {
    const Tensor x = detail::as_numbers(in[0]);
    Tensor y = detail::as_numbers(out[0]);
    return of_parts().run(Cpu{}, {&x, 1}, {&y, 1});
  }
  visit_any(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* y = pointer<T>(out[0]);
    const auto fill = static_cast<T>(value);
    const std::int64_t n = out[0].elements();
    cpu::for_parts(n, n >= parallel_moves_from, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = fill;
    });
    if (in[0].elements() == 0) return;
    const auto box = box_of(shape, begin, step);
    move_elements(in[0].shape(), pointer<const T>(in[0]), in[0].shape().strides(), y + box.offset, box.strides);
  });
}

void Concatenate::run(Cpu, Inputs in, Outputs out) const {
  const auto& shape = out[0].shape();
  const std::int64_t rows = shape.elements(0, axis), item = size_of(out[0].dtype());
  const std::int64_t row_bytes = shape.elements(axis, shape.rank()) * item;
  std::int64_t at = 0;
  for (const auto& x : in) {
    const std::int64_t bytes = x.shape().elements(axis, shape.rank()) * item;
    if (bytes == 0) continue;
    const std::byte* from = x.raw();  // before the threads start: dropped memory is computed again here
    std::byte* to = out[0].raw() + at;
    if (bytes == item) {  // a call of memcpy for each element takes longer than the element
      visit_width(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const auto* a = reinterpret_cast<const T*>(from);
        auto* b = reinterpret_cast<T*>(to);
        cpu::for_parts(rows, rows * bytes >= parallel_moves_from, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) b[r * (row_bytes / item)] = a[r];
        });
      });
    } else {
      cpu::for_parts(rows, rows * bytes >= parallel_moves_from, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          std::memcpy(to + r * row_bytes, from + r * bytes, static_cast<std::size_t>(bytes));
      });
    }
    at += bytes;
  }
}

void Flip::run(Cpu, Inputs in, Outputs out) const {
  if (in[0].elements() == 0) return;
  visit_width(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto& shape = in[0].shape();
    const auto box = flipped(shape, axes);
    move_elements(shape, pointer<const T>(in[0]) + box.offset, box.strides, pointer<T>(out[0]), shape.strides());
  });
}

void Take::run(Cpu, Inputs in, Outputs out) const {
  const auto* index = in[1].data<std::int64_t>();
  const std::int64_t rows = in[0].dim(0), count = in[1].dim(0);
  const std::int64_t bytes = in[0].shape().elements(1, in[0].rank()) * size_of(in[0].dtype());
  for (std::int64_t i = 0; i < count; ++i) {
    require(index[i] >= 0 && index[i] < rows, "[take] index {} is outside the {} rows of {}", index[i], rows, in[0]);
    if (bytes) std::memcpy(out[0].raw() + i * bytes, in[0].raw() + index[i] * bytes, static_cast<std::size_t>(bytes));
  }
}

void ScatterAdd::run(Cpu, Inputs in, Outputs out) const {
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* index = in[1].data<std::int64_t>();
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    std::fill_n(y, out[0].elements(), T(0));
    const std::int64_t length = in[0].shape().elements(1, in[0].rank());
    for (std::int64_t i = 0; i < in[0].dim(0); ++i) {
      require(index[i] >= 0 && index[i] < rows, "[scatter_add] index {} is outside {} rows", index[i], rows);
      for (std::int64_t j = 0; j < length; ++j)
        y[index[i] * length + j] = static_cast<T>(y[index[i] * length + j] + x[i * length + j]);
    }
  });
}

void OneHot::run(Cpu, Inputs in, Outputs out) const {
  visit_any_integral(in[0].dtype(), [&](auto from) {
    using I = decltype(from);
    visit_any(dtype, [&](auto zero) {
      using T = decltype(zero);
      const I* index = in[0].data<I>();
      T* y = out[0].mutable_data<T>();
      std::fill_n(y, out[0].elements(), T(0));
      for (std::int64_t i = 0; i < in[0].elements(); ++i) {
        const auto at = static_cast<std::int64_t>(index[i]);
        if (at >= 0 && at < classes) y[i * classes + at] = T(1);
      }
    });
  });
}

// A row of the result is a weighted sum of rows of x; a row consists of all later dimensions.
void MapLines::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto& shape = in[0].shape();
    const std::int64_t outer = shape.elements(0, axis), inner = shape.elements(axis + 1, shape.rank());
    const std::int64_t n = shape[axis], rows = matrix().rows;
    const auto *first = matrix().first.data<std::int64_t>(), *index = matrix().index.data<std::int64_t>();
    const auto* weight = matrix().weight.data<double>();
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    cpu::for_parts(outer * rows, outer * rows * inner > (1 << 15), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t o = line / rows, row = line - o * rows;
        T* to = y + line * inner;
        std::fill_n(to, inner, T(0));
        for (auto k = first[row]; k < first[row + 1]; ++k) {
          const auto factor = static_cast<T>(weight[k]);
          const T* from = x + (o * n + index[k]) * inner;
          for (std::int64_t i = 0; i < inner; ++i) to[i] += factor * from[i];
        }
      }
    });
  });
}

}  // namespace mpigrad::ops
