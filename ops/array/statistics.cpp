#include "ops/array/statistics.h"

#include <array>
#include <cmath>
#include <numeric>

#include "framework/engine/tape.h"
#include "framework/tensor/dtype.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {

namespace {

std::vector<int> every_axis(const Tensor& x) {
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// x^(1 / order). Its derivative at 0 is infinite, and infinity times 0 is NaN. The root is therefore taken only where x is not 0;
// elsewhere the result is 0 with derivative 0.
Tensor root(const Tensor& x, double order) {
  const Tensor none = x == 0, safe = where(none, 1, x);
  return where(none, 0, order == 2 ? sqrt(safe) : pow(safe, 1 / order));
}

double elements_along(const Tensor& x, const std::vector<int>& axes) {
  double count = 1;
  for (const int axis : axes) count *= static_cast<double>(global_shape(x)[checked_dimension("var", axis, x.rank())]);
  return count;
}

}  // namespace

Tensor var(const Tensor& x, const std::vector<int>& axes, double correction, bool keep) {
  if (is_half(x.dtype())) return cast(var(cast(x, DType::float32), axes, correction, keep), x.dtype());
  const double count = elements_along(x, axes);
  const Tensor center = detail::whole(mean(x, axes, true));
  return detail::whole(sum(square(x - center), axes, keep)) / (count - correction);
}
Tensor var(const Tensor& x, double correction) { return var(x, every_axis(x), correction); }
Tensor stddev(const Tensor& x, const std::vector<int>& axes, double correction, bool keep) {
  if (is_half(x.dtype())) return cast(stddev(cast(x, DType::float32), axes, correction, keep), x.dtype());
  return root(var(x, axes, correction, keep), 2);
}
Tensor stddev(const Tensor& x, double correction) { return stddev(x, every_axis(x), correction); }

Tensor prod(const Tensor& x, const std::vector<int>& axes, bool keep) {
  require_whole("prod", x, axes);
  Tensor y = is_floating(x.dtype()) ? x : cast(x, DType::int64);
  std::vector<int> over;
  for (const int axis : axes) {
    const int d = over.emplace_back(checked_dimension("prod", axis, x.rank()));
    if (y.dim(d) == 0) {
      Shape shape = y.shape();
      shape[d] = 1;
      UseDevice device(x.device());
      y = full(shape, 1, y.dtype());
    }
    while (y.dim(d) > 1) {  // halves are multiplied, without division, so that derivatives are right at zeros
      const std::int64_t half = y.dim(d) / 2, rest = y.dim(d) % 2;
      const Tensor product = slice(y, d, 0, half) * slice(y, d, half, 2 * half);
      y = rest == 0 ? product : concatenate({product, slice(y, d, 2 * half, 2 * half + 1)}, d);
    }
  }
  return keep || over.empty() ? y : squeeze(y, over);
}
Tensor prod(const Tensor& x) { return prod(x, every_axis(x)); }

namespace {

// Prefix sums by doubling: after k passes y[i] combines the last 2^k elements up to i.
template <class F>
Tensor scan(const char* op, const Tensor& x, int axis, const F& combine) {
  const int d = checked_dimension(op, axis, x.rank());
  require_whole(op, x, std::array{d});
  Tensor y = is_floating(x.dtype()) ? x : cast(x, DType::int64);
  for (std::int64_t step = 1, n = x.dim(d); step < n; step *= 2)
    y = concatenate({slice(y, d, 0, step), combine(slice(y, d, 0, n - step), slice(y, d, step, n))}, d);
  return y;
}

}  // namespace

Tensor cumulative_sum(const Tensor& x, int axis) { return scan("cumulative_sum", x, axis, add); }
Tensor cumulative_prod(const Tensor& x, int axis) {
  return scan("cumulative_prod", x, axis, static_cast<Tensor (*)(const Tensor&, const Tensor&)>(multiply));
}
Tensor diff(const Tensor& x, int axis, int times) {
  const int d = checked_dimension("diff", axis, x.rank());
  require_whole("diff", x, std::array{d});
  Tensor y = x;
  for (int k = 0; k < times && y.dim(d) > 0; ++k) y = slice(y, d, 1, y.dim(d)) - slice(y, d, 0, y.dim(d) - 1);
  return y;
}

Tensor count_nonzero(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return sum(cast(cast(constant(x), DType::boolean), DType::int64), axes, keep);
}
Tensor count_nonzero(const Tensor& x) { return count_nonzero(x, every_axis(x)); }

Tensor vector_norm(const Tensor& x, const std::vector<int>& axes, double order, bool keep) {
  require(is_floating(x.dtype()) && !std::isnan(order), "[vector_norm] of order {} needs floating-point elements: {}", order, x);
  if (is_half(x.dtype())) return cast(vector_norm(cast(x, DType::float32), axes, order, keep), x.dtype());
  if (order == 0) return cast(detail::whole(count_nonzero(x, axes, keep)), x.dtype());
  if (order == 1) return detail::whole(sum(abs(x), axes, keep));
  if (std::isinf(order)) require_whole("vector_norm", x, axes);
  if (std::isinf(order)) return order > 0 ? max(abs(x), axes, keep) : min(abs(x), axes, keep);
  const Tensor powers = detail::whole(sum(order == 2 ? square(x) : pow(abs(x), order), axes, keep));
  return root(powers, order);
}
Tensor vector_norm(const Tensor& x, double order) { return vector_norm(x, every_axis(x), order); }

Tensor histogram(const Tensor& x, std::int64_t bins, double low, double high) {
  require(bins > 0 && low < high, "[histogram] {} bins from {} to {}", bins, low, high);
  require_whole("histogram", x, every_axis(x));
  const Tensor values = reshape(cast(constant(x), DType::float64), Shape{x.elements()});
  const Tensor inside = logical_and(values >= low, values <= high);
  const Tensor bin = floor((where(inside, values, low) - low) * (static_cast<double>(bins) / (high - low)));
  const Tensor index = where(inside, minimum(cast(bin, DType::int64), bins - 1), bins);
  return slice(scatter_add(ones_like(index), index, bins + 1), 0, 0, bins);
}

}  // namespace mpigrad
