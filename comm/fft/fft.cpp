#include "comm/fft/fft.h"

#include <algorithm>

#include "comm/fft/transposing.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

double points(const Tensor& x, const std::vector<int>& axes) {
  double result = 1;
  for (const int d : axes) result *= static_cast<double>(x.layout()->global[d]);
  return result;
}

std::vector<int> part_of_order(const std::vector<int>& order, std::size_t first, std::size_t last) {
  return {order.begin() + static_cast<std::ptrdiff_t>(first), order.begin() + static_cast<std::ptrdiff_t>(last)};
}

Tensor complex_transform(const char* op, const Tensor& x, const std::vector<int>& order, bool inverse, double scale,
                         const LayoutPtr& layout) {
  require(real_type(x.dtype()) == DType::float32 || real_type(x.dtype()) == DType::float64,
          "[{}] float32, float64 or a complex type is needed: {}", op, x);
  return Transposing(op, order, layout)
      .run(cast(x, complex_type(x.dtype())), [&](const Tensor& here, std::size_t first, std::size_t last) {
        return apply(
            ops::FourierSum{
                .axes = part_of_order(order, first, last), .inverse = inverse, .scale = last == order.size() ? scale : 1},
            {here});
      });
}

void require_no_layout(const char* op, const Tensor& x, const LayoutPtr& layout) {
  require(!layout, "[{}] a layout is named for a plain tensor: {}", op, x);
}

}  // namespace

Tensor fft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("fft", x, layout), local::fft(x, axes);
  auto order = transformed_axes("fft", x, axes);
  std::reverse(order.begin(), order.end());
  return complex_transform("fft", x, order, false, 1, layout);
}

Tensor ifft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("ifft", x, layout), local::ifft(x, axes);
  const auto order = transformed_axes("ifft", x, axes);
  return complex_transform("ifft", x, order, true, 1 / points(x, order), layout);
}

Tensor rfft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("rfft", x, layout), local::rfft(x, axes);
  auto order = transformed_axes("rfft", x, axes);
  std::reverse(order.begin(), order.end());
  return Transposing("rfft", order, layout).run(x, [&](const Tensor& here, std::size_t first, std::size_t last) {
    const auto part = part_of_order(order, first, last);
    return first == 0 ? apply(ops::RealFourierSum{.axes = part}, {here}) : apply(ops::FourierSum{.axes = part}, {here});
  });
}

Tensor irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent, const LayoutPtr& layout) {
  if (!y.layout()) return require_no_layout("irfft", y, layout), local::irfft(y, axes, extent);
  const auto order = transformed_axes("irfft", y, axes);
  const int halved = order.back();
  require(extent >= 1 && extent / 2 + 1 == y.layout()->global[halved],
          "[irfft] the extent of dimension {} of the result does not fit, {}: {}", halved, extent, y);
  require(is_complex(y.dtype()), "[irfft] complex64 or complex128 is needed: {}", y);
  auto others = order;
  others.pop_back();
  const double scale = 1 / (points(y, others) * static_cast<double>(extent));
  return Transposing("irfft", order, layout).run(y, [&](const Tensor& here, std::size_t first, std::size_t last) {
    const auto part = part_of_order(order, first, last);
    if (last < order.size()) return apply(ops::FourierSum{.axes = part, .inverse = true}, {here});
    return apply(ops::RealFourierInverse{.axes = part, .extent = extent, .scale = scale}, {here});
  });
}

}  // namespace mpigrad
