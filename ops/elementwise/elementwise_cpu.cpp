#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "framework/tensor/half_rows.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/row_walk.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/parts.h"

namespace mpigrad::ops {
namespace {

template <class A, class R, class F>
void binary(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const A *pa = a.data<A>(), *pb = b.data<A>();
  R* py = y.mutable_data<R>();
  const std::int64_t n = y.elements();
  if (a.shape() == b.shape()) {
    return cpu::for_parts(n, n >= parallel_from, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) py[i] = f(pa[i], pb[i]);
    });
  }
  const auto walk = rows_of(y.shape(), broadcast_strides(a.shape(), y.shape()), broadcast_strides(b.shape(), y.shape()));
  const std::int64_t step_a = walk.strides[0][innermost(walk)], step_b = walk.strides[1][innermost(walk)];
  for_each_row(walk, [&](std::int64_t at, const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
    const A *ra = pa + offsets[0], *rb = pb + offsets[1];
    R* ry = py + at;
    if (step_a && step_b)
      for (std::int64_t i = 0; i < count; ++i) ry[i] = f(ra[i], rb[i]);
    else if (step_a)
      for (std::int64_t i = 0; i < count; ++i) ry[i] = f(ra[i], rb[0]);
    else
      for (std::int64_t i = 0; i < count; ++i) ry[i] = f(ra[0], rb[i * step_b]);
  });
}

// 16-bit elements are converted to float32 and back in blocks that stay in the first cache: converting whole operands would need
// three times their memory. The functions compute the same numbers either way.
constexpr std::int64_t block = 1 << 11;

// Calls f(first element, elements) for blocks of n elements.
template <class F>
void for_each_block(std::int64_t n, F&& f) {
  cpu::for_parts((n + block - 1) / block, n >= parallel_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * block; at < std::min(n, end * block); at += block) f(at, std::min(block, n - at));
  });
}

void widen(const Tensor& x, std::int64_t at, std::int64_t count, float* to) {
  if (x.dtype() == DType::bfloat16) detail::convert(x.data<BFloat16>() + at, to, count);
  else detail::convert(x.data<Float16>() + at, to, count);
}
void round(const float* from, std::int64_t count, Tensor& y, std::int64_t at) {
  if (y.dtype() == DType::bfloat16) detail::convert(from, y.mutable_data<BFloat16>() + at, count);
  else detail::convert(from, y.mutable_data<Float16>() + at, count);
}

// Widens operand i of a walk, repeated along dimensions that broadcast.
template <int N, class H>
void widen(const StridedArrays<N>& walk, std::size_t i, const H* x, std::int64_t at, std::int64_t count, float* to) {
  const auto inner = innermost(walk);
  const std::int64_t length = walk.extents[inner], step = walk.strides[i][inner];
  for (std::int64_t done = 0; done < count;) {
    std::int64_t rest = (at + done) / length;
    const std::int64_t first = at + done - rest * length, n = std::min(length - first, count - done);
    const H* row = x + first * step;
    for (std::size_t d = inner; d-- > 0;) {
      row += rest % walk.extents[d] * walk.strides[i][d];
      rest /= walk.extents[d];
    }
    if (step == 0) std::fill_n(to + done, n, float{*row});
    else
      for (std::int64_t j = 0; j < n; ++j) to[done + j] = row[j * step];
    done += n;
  }
}
template <int N>
void widen(const StridedArrays<N>& walk, std::size_t i, const Tensor& x, std::int64_t at, std::int64_t count, float* to) {
  if (walk.rank == 1 && walk.strides[i][0] == 1) return widen(x, at, count, to);
  if (x.dtype() == DType::bfloat16) widen(walk, i, x.data<BFloat16>(), at, count, to);
  else widen(walk, i, x.data<Float16>(), at, count, to);
}

// y[i] = f(a[i], b[i]); y has the operands' 16-bit type or is boolean
template <class F>
void binary_of_half(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const auto& shape = y.shape();
  const auto walk = rows_of(shape, broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape));
  for_each_block(y.elements(), [&](std::int64_t at, std::int64_t count) {
    alignas(64) float of_a[block], of_b[block];
    widen(walk, 0, a, at, count, of_a);
    widen(walk, 1, b, at, count, of_b);
    const F function = f;
    if constexpr (std::is_same_v<decltype(function(1.0F, 1.0F)), bool>) {
      bool* py = y.mutable_data<bool>() + at;
      for (std::int64_t i = 0; i < count; ++i) py[i] = function(of_a[i], of_b[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) of_a[i] = function(of_a[i], of_b[i]);
      round(of_a, count, y, at);
    }
  });
}

// c ? a : b on the bits, to avoid a branch by the compiler, which is ten times slower for masks without a pattern.
template <class T>
T either(bool c, T a, T b) {
  using Bits = std::conditional_t<
      sizeof(T) == 8, std::uint64_t,
      std::conditional_t<sizeof(T) == 4, std::uint32_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
  const auto mask = static_cast<Bits>(-static_cast<Bits>(c));
  return std::bit_cast<T>(
      static_cast<Bits>((std::bit_cast<Bits>(a) & mask) | (std::bit_cast<Bits>(b) & static_cast<Bits>(~mask))));
}

}  // namespace

template <class F>
void Unary<F>::run(Cpu, Inputs in, Outputs out) const {
  if (is_half(in[0].dtype())) {
    return for_each_block(in[0].elements(), [&](std::int64_t at, std::int64_t count) {
      alignas(64) float of_x[block];
      widen(in[0], at, count, of_x);
      const F function = f;
      for (std::int64_t i = 0; i < count; ++i) of_x[i] = function(of_x[i]);
      round(of_x, count, out[0], at);
    });
  }
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    const std::int64_t n = in[0].elements();
    const F function = f;
    cpu::for_parts(n, n >= parallel_from, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = function(x[i]);
    });
  });
}

template <class F>
void Binary<F>::run(Cpu, Inputs in, Outputs out) const {
  if constexpr (takes<F, float>)
    if (is_half(in[0].dtype())) return binary_of_half(in[0], in[1], out[0], f);
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (takes<F, T>) binary<T, T>(in[0], in[1], out[0], f);
  });
}

template <class F>
void Compare<F>::run(Cpu, Inputs in, Outputs out) const {
  if (is_half(in[0].dtype())) return binary_of_half(in[0], in[1], out[0], F{});
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    binary<T, bool>(in[0], in[1], out[0], F{});
  });
}

void Where::run(Cpu, Inputs in, Outputs out) const {
  visit_any(in[1].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const bool* c = in[0].data<bool>();
    const T *a = in[1].data<T>(), *b = in[2].data<T>();
    T* y = out[0].mutable_data<T>();
    const auto& shape = out[0].shape();
    const auto walk = rows_of(shape, broadcast_strides(in[0].shape(), shape), broadcast_strides(in[1].shape(), shape),
                              broadcast_strides(in[2].shape(), shape));
    const std::array step{walk.strides[0][innermost(walk)], walk.strides[1][innermost(walk)], walk.strides[2][innermost(walk)]};
    for_each_row(walk, [&](std::int64_t at, const std::array<std::int64_t, 3>& offset, std::int64_t count) {
      const bool* rc = c + offset[0];
      const T *ra = a + offset[1], *rb = b + offset[2];
      T* ry = y + at;
      // Compile-time steps for the common uses of masks.
      const auto choose = [&](auto step_a, auto step_b) {
        for (std::int64_t i = 0; i < count; ++i) ry[i] = either(rc[i], ra[i * step_a], rb[i * step_b]);
      };
      constexpr std::integral_constant<std::int64_t, 0> still{};
      constexpr std::integral_constant<std::int64_t, 1> forth{};
      if (step[0] == 1 && step[1] == 1 && step[2] == 1) choose(forth, forth);
      else if (step[0] == 1 && step[1] == 0 && step[2] == 1) choose(still, forth);
      else if (step[0] == 1 && step[1] == 1 && step[2] == 0) choose(forth, still);
      else
        for (std::int64_t i = 0; i < count; ++i) ry[i] = rc[i * step[0]] ? ra[i * step[1]] : rb[i * step[2]];
    });
  });
}

void Cast::run(Cpu, Inputs in, Outputs out) const {
  visit_any(in[0].dtype(), [&](auto from) {
    using From = decltype(from);
    visit_any(to, [&](auto zero) {
      using To = decltype(zero);
      const From* x = in[0].data<From>();
      To* y = out[0].mutable_data<To>();
      const std::int64_t n = in[0].elements();
      cpu::for_parts(n, n >= parallel_from, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<To>(x[i]);
      });
    });
  });
}

#define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Binary<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Compare<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::ops
