#include "models/simulation/spectral.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "comm/fft/cosines.h"
#include "comm/fft/fft.h"
#include "comm/fft/transposing.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::fields::detail {
namespace {

constexpr double pi = std::numbers::pi;

// A constant with these values along `dimension` of x and extents of 1 along the others.
Tensor along(const Tensor& x, int dimension, const std::vector<double>& values) {
  Shape shape{1, 1, 1, 1, 1};
  shape[dimension] = static_cast<std::int64_t>(values.size());
  UseDevice use(x.device());
  return constant(from_vector(shape, values, real_type(x.dtype())));
}

// The values times those of the wave numbers 1 ... n - 1 between walls n spacings apart.
std::vector<double> wave_numbers(std::int64_t n, double spacing, double factor) {
  std::vector<double> result;
  for (std::int64_t k = 1; k < n; ++k)
    result.push_back(factor * pi * static_cast<double>(k) / (static_cast<double>(n) * spacing));
  return result;
}

// x with zeros before and after it along a dimension.
Tensor with_zeros(const Tensor& x, int dimension, std::int64_t before, std::int64_t after) {
  Shape low{0, 0, 0, 0, 0}, high = low;
  low[dimension] = before, high[dimension] = after;
  return pad(x, low, high);
}

// The second difference's eigenvalues number [begin, end) of an extent of n: sum over j of c(j) (2 cos(j w) - 2) / spacing^2 =
// -4 sum over j of c(j) sin(j w / 2)^2 / spacing^2, where c are the weights and w is the phase between neighbours.
std::vector<double> eigenvalues(std::int64_t n, double spacing, int order, Boundary boundary, std::int64_t begin,
                                std::int64_t end) {
  const auto weights = order == spectral ? std::vector<double>{} : difference_weights(2, order);
  std::vector<double> result;
  for (std::int64_t k = begin; k < end; ++k) {
    const auto waves = boundary == Boundary::periodic ? 2 * std::min(k, n - k) : boundary == Boundary::dirichlet ? k + 1 : k;
    const double w = pi * static_cast<double>(waves) / static_cast<double>(n);
    double value = order == spectral ? -w * w : 0;
    for (int j = 1; j <= order / 2; ++j) {
      const double s = std::sin(j * w / 2);
      value -= 4 * weights[static_cast<std::size_t>(order / 2 + j)] * s * s;
    }
    result.push_back(value / (spacing * spacing));
  }
  return result;
}

}  // namespace

Tensor spectral_derivative(const Tensor& x, std::size_t d, double spacing, Boundary boundary) {
  const int dimension = static_cast<int>(d) + 1;
  const auto n = global_shape(x)[dimension];
  // f of the local elements of y, whose dimension is whole and keeps its extent
  const auto locally = [](const Tensor& y, const auto& f) { return f(y.without_layout()).with_layout(y.layout()); };
  if (boundary == Boundary::periodic) {
    std::vector<double> k;
    for (std::int64_t i = 0; i <= n / 2; ++i)
      k.push_back(2 * i == n ? 0 : 2 * pi * static_cast<double>(i) / (static_cast<double>(n) * spacing));
    const auto ik = along(x, dimension, k);
    const auto y =
        locally(rfft(x, {dimension}), [&](const Tensor& waves) { return waves * complex(constant(zeros_like(ik)), ik); });
    return irfft(y, {dimension}, n, x.layout());
  }
  if (boundary == Boundary::neumann) {  // cosines become sines; that of the wave number n is 0
    const auto k = along(x, dimension, wave_numbers(n, spacing, -1));
    const auto y = locally(dct(x, {dimension}),
                           [&](const Tensor& waves) { return with_zeros(slice(waves, dimension, 1, n) * k, dimension, 0, 1); });
    return idst(y, {dimension}, x.layout());
  }
  const auto k = along(x, dimension, wave_numbers(n, spacing, 1));
  const auto y = locally(dst(x, {dimension}),
                         [&](const Tensor& waves) { return with_zeros(slice(waves, dimension, 0, n - 1) * k, dimension, 1, 0); });
  return idct(y, {dimension}, x.layout());
}

Tensor by_eigenvalues(const char* op, const Tensor& x, const DifferenceOptions& options, bool inverse) {
  require(x.dtype() == DType::float32 || x.dtype() == DType::float64, "[{}] float32 or float64 is needed: {}", op, x);
  const auto& global = global_shape(x);
  const auto boundary = [&](int dimension) { return options.boundary[static_cast<std::size_t>(dimension - 1)]; };
  std::vector<int> order;  // from the last dimension to the first, as in rfft(): the bits do not depend on what is split
  int halved = -1;
  for (int dimension = 3; dimension > 0; --dimension) {
    require(global[dimension] > 0, "[{}] dimension {} has no elements: {}", op, dimension, x);
    if (global[dimension] == 1) continue;
    order.push_back(dimension);
    if (halved < 0 && boundary(dimension) == Boundary::periodic) halved = dimension;
  }
  if (order.empty()) return 0.0 * x;

  const auto transform = [&](const std::vector<int>& axes, bool back) {
    return [&, axes, back](Tensor y, std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const int d = axes[i];
        const double scale = back ? 1 / static_cast<double>(global[d]) : 1;
        if (boundary(d) != Boundary::periodic)
          y = local::half_waves(y.without_layout(), d, {.odd = boundary(d) == Boundary::dirichlet, .inverse = back})
                  .with_layout(y.layout());
        else if (d != halved) y = apply(ops::FourierSum{.axes = {d}, .inverse = back, .scale = scale}, {y});
        else if (!back) y = apply(ops::RealFourierSum{.axes = {d}}, {y});
        else y = apply(ops::RealFourierInverse{.axes = {d}, .extent = global[d], .scale = scale}, {y});
      }
      return y;
    };
  };
  const auto run = [&](const Tensor& y, const std::vector<int>& axes, bool back) {
    const auto part = transform(axes, back);
    if (!y.layout()) return part(y, 0, axes.size());
    return Transposing(op, axes, back ? x.layout() : LayoutPtr()).run(y, part);
  };

  const auto waves = run(x, order, false);
  const auto box = waves.layout() ? waves.layout()->box() : Box{{0, 0, 0, 0, 0}, waves.shape()};
  Tensor factor;
  for (const int d : order) {
    const auto spacing = options.spacing[static_cast<std::size_t>(d - 1)];
    const auto own = along(x, d, eigenvalues(global[d], spacing, options.order, boundary(d), box.begin[d], box.end[d]));
    factor = factor ? factor + own : own;
  }
  if (inverse) {
    const auto singular = factor == 0;
    factor = where(singular, 0, 1 / where(singular, 1, factor));
  }
  const auto product = (waves.without_layout() * constant(factor)).with_layout(waves.layout());
  return run(product, {order.rbegin(), order.rend()}, true);
}

}  // namespace mpigrad::fields::detail
