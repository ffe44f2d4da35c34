#include "ops/fft/fft.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/base/joined.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/fft/lines.h"
#include "ops/layout_rules.h"

namespace mpigrad {
namespace ops {
namespace {

std::vector<int> reversed(std::vector<int> axes) {
  std::reverse(axes.begin(), axes.end());
  return axes;
}

// The layout of `shape`, which differs from that of x in extents of transformed dimensions only. They may be "split" in one part.
LayoutPtr transformed_layout(std::string_view op, const Tensor& x, const std::vector<int>& axes, const Shape& shape) {
  Layout result = *x.layout();
  for (const int d : axes) {
    result.global[d] = shape[d];
    const int a = result.axis_of(d);
    if (a < 0) continue;
    auto& axis = result.axes[static_cast<std::size_t>(a)];
    require(axis.cuts.size() == 2,
            "[{}] along dimension {}, which is split; fft() and its like in comm/fft/fft.h redistribute it: {}", op, d, x);
    axis.cuts = {0, shape[d]};
  }
  return std::make_shared<Layout>(std::move(result));
}

void require_lines(std::string_view op, const Tensor& x, const std::vector<int>& axes) {
  for (const int d : axes)
    require(x.dim(d) >= 1 && x.dim(d) <= std::numeric_limits<int>::max(), "[{}] dimension {} has {} elements: {}", op, d,
            x.dim(d), x);
}

// 5 N log2 N for complex numbers, half of it for real ones.
Cost cost_of(const Tensor& x, const Tensor& y, const std::vector<int>& axes) {
  const Tensor& wide = x.elements() > y.elements() ? x : y;
  double operations = 0;
  for (const int d : axes) operations += std::log2(static_cast<double>(std::max<std::int64_t>(wide.dim(d), 1)));
  const bool real = !is_complex(x.dtype()) || !is_complex(y.dtype());
  return {(real ? 2.5 : 5.0) * operations * static_cast<double>(wide.elements()),
          static_cast<double>(axes.size()) * static_cast<double>(x.bytes() + y.bytes())};
}

}  // namespace

Types FourierSum::infer(Inputs in) const {
  require(is_complex(in[0].dtype()), "[fft] complex64 or complex128 is needed: {}", in[0]);
  require_lines("fft", in[0], axes);
  return {in[0].type()};
}
Cost FourierSum::cost(Inputs in, Outputs out) const { return cost_of(in[0], out[0], axes); }
LayoutPtr FourierSum::layout(Inputs in) const { return transformed_layout("fft", in[0], axes, in[0].layout()->global); }
Tensors FourierSum::vjp(const Replay&, Inputs g) const {
  return {mpigrad::apply(FourierSum{.axes = reversed(axes), .inverse = !inverse, .scale = scale, .scale_first = !scale_first},
                         {g[0]})};
}

Types RealFourierSum::infer(Inputs in) const {
  require(in[0].dtype() == DType::float32 || in[0].dtype() == DType::float64, "[rfft] float32 or float64 is needed: {}", in[0]);
  require_lines("rfft", in[0], axes);
  Shape shape = in[0].shape();
  shape[axes.front()] = shape[axes.front()] / 2 + 1;
  return {{shape, complex_type(in[0].dtype())}};
}
Cost RealFourierSum::cost(Inputs in, Outputs out) const { return cost_of(in[0], out[0], axes); }
LayoutPtr RealFourierSum::layout(Inputs in) const {
  Shape shape = in[0].layout()->global;
  shape[axes.front()] = shape[axes.front()] / 2 + 1;
  return transformed_layout("rfft", in[0], axes, shape);
}
Tensors RealFourierSum::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(RealFourierInverse{.axes = reversed(axes),
                                            .extent = at.input(0).dim(axes.front()),
                                            .scale = scale,
                                            .scale_first = !scale_first,
                                            .weighted = !weighted},
                         {g[0]})};
}

Types RealFourierInverse::infer(Inputs in) const {
  require(is_complex(in[0].dtype()), "[irfft] complex64 or complex128 is needed: {}", in[0]);
  require_lines("irfft", in[0], axes);
  const int last = axes.back();
  require(extent >= 1 && extent / 2 + 1 == in[0].dim(last),
          "[irfft] the extent of dimension {} of the result is {} or {}, not {}: {}", last,
          std::max<std::int64_t>(2 * in[0].dim(last) - 2, 1), 2 * in[0].dim(last) - 1, extent, in[0]);
  Shape shape = in[0].shape();
  shape[last] = extent;
  return {{shape, real_type(in[0].dtype())}};
}
Cost RealFourierInverse::cost(Inputs in, Outputs out) const { return cost_of(in[0], out[0], axes); }
LayoutPtr RealFourierInverse::layout(Inputs in) const {
  Shape shape = in[0].layout()->global;
  shape[axes.back()] = extent;
  return transformed_layout("irfft", in[0], axes, shape);
}
Tensors RealFourierInverse::vjp(const Replay&, Inputs g) const {
  return {mpigrad::apply(
      RealFourierSum{.axes = reversed(axes), .scale = scale, .scale_first = !scale_first, .weighted = !weighted}, {g[0]})};
}

FourierPasses passes_of(const FourierSum& op) {
  return {.axes = op.axes, .inverse = op.inverse, .scale = op.scale, .scale_first = op.scale_first};
}
FourierPasses passes_of(const RealFourierSum& op, const Tensor& x) {
  return {.axes = op.axes,
          .halved = x.dim(op.axes.front()),
          .scale = op.scale,
          .between = op.weighted ? 2.0 : 1.0,
          .scale_first = op.scale_first};
}
FourierPasses passes_of(const RealFourierInverse& op) {
  return {.axes = op.axes,
          .inverse = true,
          .halved = op.extent,
          .scale = op.scale,
          .between = op.weighted ? 0.5 : 1.0,
          .scale_first = op.scale_first};
}

void for_each_pass(const FourierPasses& passes, const Tensor& in, Tensor& out,
                   const std::function<void(const LinePass&, const Tensor&, Tensor&)>& pass) {
  const std::size_t count = passes.axes.size();
  const bool to_half = passes.halved > 0 && !is_complex(in.dtype()), from_half = passes.halved > 0 && !to_half;
  // Results of the passes before half_to_real, which has another shape and type.
  Tensor between = from_half && count > 1 ? Tensor(in.type(), in.device()) : Tensor();
  Tensor here = in;
  for (std::size_t i = 0; i < count; ++i) {
    const int d = passes.axes[i];
    const bool first = i == 0, last = i + 1 == count;
    LinePass line{.kind = passes.inverse ? Lines::backward : Lines::forward,
                  .outer = here.shape().elements(0, d),
                  .n = here.dim(d),
                  .inner = here.shape().elements(d + 1, here.rank())};
    if (to_half && first) line.kind = Lines::real_to_half, line.between = passes.between;
    if (from_half && last) line.kind = Lines::half_to_real, line.between = passes.between, line.n = passes.halved;
    if (passes.scale_first ? first : last) line.scale = passes.scale;
    Tensor& to = from_half && !last ? between : out;
    if (line.outer * line.inner > 0) pass(line, here, to);
    here = to;
  }
}

}  // namespace ops

namespace {

std::vector<int> checked_axes(const char* op, const Tensor& x, const std::vector<int>& axes) {
  require(!axes.empty(), "[{}] name the dimensions to transform: {}", op, x);
  std::vector<int> result;
  for (const int axis : axes) result.push_back(checked_dimension(op, axis, x.rank()));
  auto sorted = result;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail("[{}] a dimension is named twice: {}", op, joined(axes, ", "));
  return result;
}

double points(const Tensor& x, const std::vector<int>& axes) {
  double result = 1;
  for (const int d : axes) result *= static_cast<double>(global_shape(x)[d]);
  return result;
}

Tensor as_complex(const char* op, const Tensor& x) {
  require(real_type(x.dtype()) == DType::float32 || real_type(x.dtype()) == DType::float64,
          "[{}] float32, float64 or a complex type is needed: {}", op, x);
  return cast(x, complex_type(x.dtype()));
}

Tensor frequencies(const char* name, std::int64_t n, double spacing, DType dtype, bool negative) {
  require(n >= 1 && spacing != 0, "[{}] n is at least 1 and spacing is not 0, got {} and {}", name, n, spacing);
  const std::int64_t count = negative ? n : n / 2 + 1;
  std::vector<double> values;
  for (std::int64_t k = 0; k < count; ++k)
    values.push_back(static_cast<double>(negative && k >= (n + 1) / 2 ? k - n : k) / (static_cast<double>(n) * spacing));
  return constant(from_vector({count}, values, dtype));
}

}  // namespace

Tensor fftfreq(std::int64_t n, double spacing, DType dtype) { return frequencies("fftfreq", n, spacing, dtype, true); }
Tensor rfftfreq(std::int64_t n, double spacing, DType dtype) { return frequencies("rfftfreq", n, spacing, dtype, false); }

Tensor local::fft(const Tensor& x, const std::vector<int>& axes) {
  auto order = checked_axes("fft", x, axes);
  std::reverse(order.begin(), order.end());
  return apply(ops::FourierSum{.axes = order}, {as_complex("fft", x)});
}
Tensor local::ifft(const Tensor& x, const std::vector<int>& axes) {
  const auto order = checked_axes("ifft", x, axes);
  return apply(ops::FourierSum{.axes = order, .inverse = true, .scale = 1 / points(x, order)}, {as_complex("ifft", x)});
}
Tensor local::rfft(const Tensor& x, const std::vector<int>& axes) {
  auto order = checked_axes("rfft", x, axes);
  std::reverse(order.begin(), order.end());
  return apply(ops::RealFourierSum{.axes = order}, {x});
}
Tensor local::irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent) {
  const auto order = checked_axes("irfft", y, axes);
  auto others = order;
  others.pop_back();
  const double m = points(y, others) * static_cast<double>(extent);
  return apply(ops::RealFourierInverse{.axes = order, .extent = extent, .scale = 1 / m}, {y});
}

}  // namespace mpigrad
