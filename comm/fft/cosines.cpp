#include "comm/fft/cosines.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "comm/fft/transposing.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// With F the Fourier transform of the 2 N elements of the extended x, and t(k) = pi k / (2 N):
//   even  F(k) = exp(i t(k)) C(k),           k = 0 ... N - 1, and F(N) = 0
//   odd   F(k) = -i exp(i t(k)) S(k - 1),    k = 1 ... N, and F(0) = 0
// These are the factors of C and S; the inverse ones are their conjugates. A constant of the shape [N, 1, ...] with the
// dimensions from d on.
Tensor factors(const Tensor& x, int d, bool odd, bool conjugate) {
  const std::int64_t n = x.dim(d);
  std::vector<double> re, im;
  for (std::int64_t k = 0; k < n; ++k) {
    const double t = std::numbers::pi * static_cast<double>(odd ? k + 1 : k) / static_cast<double>(2 * n);
    re.push_back(odd ? std::sin(t) : std::cos(t));
    im.push_back((odd ? -std::cos(t) : std::sin(t)) * (conjugate ? -1 : 1));
  }
  Shape shape{n};
  while (shape.rank() < x.rank() - d) shape.push_back(1);
  UseDevice use(x.device());
  const DType dtype = real_type(x.dtype());
  return constant(complex(from_vector(shape, re, dtype), from_vector(shape, im, dtype)));
}

Tensor transform(const char* op, const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout,
                 const local::HalfWaves& kind) {
  require(x.dtype() == DType::float32 || x.dtype() == DType::float64, "[{}] float32 or float64 is needed: {}", op, x);
  auto order = transformed_axes(op, x, axes);
  if (!kind.inverse) std::reverse(order.begin(), order.end());
  const auto part = [&](const Tensor& here, std::size_t first, std::size_t last) {
    Tensor y = here.without_layout();
    for (std::size_t i = first; i < last; ++i) y = local::half_waves(y, order[i], kind);
    return y.with_layout(here.layout());
  };
  if (x.layout()) return Transposing(op, order, layout).run(x, part);
  require(!layout, "[{}] a layout is named for a plain tensor: {}", op, x);
  return part(x, 0, order.size());
}

}  // namespace

Tensor local::half_waves(const Tensor& x, int d, const HalfWaves& kind) {
  if (is_complex(x.dtype())) return view_as_complex(half_waves(view_as_real(x), d, kind));
  const std::int64_t n = x.dim(d), first = kind.odd ? 1 : 0;
  const Tensor factor = factors(x, d, kind.odd, !kind.inverse);
  if (kind.inverse) {
    Shape low = x.shape(), high = x.shape();
    std::fill(low.begin(), low.end(), 0), std::fill(high.begin(), high.end(), 0);
    low[d] = first, high[d] = 1 - first;
    return slice(irfft(pad(x * factor, low, high), {d}, 2 * n), d, 0, n);
  }
  // A tensor of its own, so that the two cotangents of x are added before those of other uses of x: the order of a sum decides
  // its bits, and x is redistributed on some numbers of ranks.
  const Tensor own = apply(ops::Reshape{.shape = x.shape()}, {x});
  const Tensor mirrored = flip(own, {d});
  const Tensor waves = rfft(concatenate({own, kind.odd ? -mirrored : mirrored}, d), {d});
  return real(slice(waves, d, first, first + n) * factor);
}

Tensor dct(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  return transform("dct", x, axes, layout, {});
}
Tensor idct(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  return transform("idct", x, axes, layout, {.inverse = true});
}
Tensor dst(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  return transform("dst", x, axes, layout, {.odd = true});
}
Tensor idst(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  return transform("idst", x, axes, layout, {.odd = true, .inverse = true});
}

}  // namespace mpigrad
