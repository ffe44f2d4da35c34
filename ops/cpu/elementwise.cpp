#include <algorithm>
#include <array>

#include "ops/broadcast.h"
#include "ops/elementwise_list.h"
#include "ops/elementwise_ops.h"

namespace mpigrad::ops {
namespace {

constexpr std::int64_t parallel_from = 1 << 15;  // elements; below, starting threads costs more than it saves

// Calls row(offset in the result, offsets of the operands) for each run of the last dimension.
template <std::size_t N, class Row>
void for_each_row(const Shape& result, const std::array<std::array<std::int64_t, Shape::max_rank>, N>& strides, Row&& row) {
  const std::int64_t length = result.rank() ? result.back() : 1;
  const std::int64_t rows = length ? result.elements() / length : 0;
#pragma omp parallel for if (rows * length >= parallel_from) schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    std::array<std::int64_t, N> offsets{};
    std::int64_t rest = r;
    for (int d = result.rank() - 2; d >= 0; --d) {
      const auto index = rest % result[d];
      rest /= result[d];
      for (std::size_t i = 0; i < N; ++i) offsets[i] += index * strides[i][static_cast<std::size_t>(d)];
    }
    row(r * length, offsets);
  }
}

template <class A, class R, class F>
void binary(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const A *pa = a.data<A>(), *pb = b.data<A>();
  R* py = y.mutable_data<R>();
  const std::int64_t n = y.elements();
  if (a.shape() == b.shape()) {
#pragma omp parallel for if (n >= parallel_from) schedule(static) firstprivate(f)
    for (std::int64_t i = 0; i < n; ++i) py[i] = f(pa[i], pb[i]);
    return;
  }
  const std::array strides{broadcast_strides(a.shape(), y.shape()), broadcast_strides(b.shape(), y.shape())};
  const std::int64_t length = y.rank() ? y.shape().back() : 1;
  const auto last = static_cast<std::size_t>(std::max(0, y.rank() - 1));
  const std::int64_t step_a = strides[0][last], step_b = strides[1][last];
  for_each_row<2>(y.shape(), strides, [&](std::int64_t at, const std::array<std::int64_t, 2>& offsets) {
    const A *ra = pa + offsets[0], *rb = pb + offsets[1];
    R* ry = py + at;
    if (step_a && step_b)
      for (std::int64_t i = 0; i < length; ++i) ry[i] = f(ra[i], rb[i]);
    else if (step_a)
      for (std::int64_t i = 0; i < length; ++i) ry[i] = f(ra[i], rb[0]);
    else
      for (std::int64_t i = 0; i < length; ++i) ry[i] = f(ra[0], rb[i * step_b]);
  });
}

}  // namespace

template <class F>
void Unary<F>::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    const std::int64_t n = in[0].elements();
    const F function = f;
#pragma omp parallel for if (n >= parallel_from) schedule(static) firstprivate(function)
    for (std::int64_t i = 0; i < n; ++i) y[i] = function(x[i]);
  });
}

template <class F>
void Binary<F>::run(Cpu, Inputs in, Outputs out) const {
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    binary<T, T>(in[0], in[1], out[0], f);
  });
}

template <class F>
void Compare<F>::run(Cpu, Inputs in, Outputs out) const {
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
    const std::array strides{broadcast_strides(in[0].shape(), shape), broadcast_strides(in[1].shape(), shape),
                             broadcast_strides(in[2].shape(), shape)};
    const std::int64_t length = shape.rank() ? shape.back() : 1;
    const auto last = static_cast<std::size_t>(std::max(0, shape.rank() - 1));
    for_each_row<3>(shape, strides, [&](std::int64_t at, const std::array<std::int64_t, 3>& offset) {
      for (std::int64_t i = 0; i < length; ++i)
        y[at + i] =
            c[offset[0] + i * strides[0][last]] ? a[offset[1] + i * strides[1][last]] : b[offset[2] + i * strides[2][last]];
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
#pragma omp parallel for if (n >= parallel_from) schedule(static)
      for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
    });
  });
}

#define MPIGRAD_MAKE(F) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F) template void Binary<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F) template void Compare<F>::run(Cpu, Inputs, Outputs) const;
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::ops
