#include "ops/array/creation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "ops/array/shapes.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

Tensor indices(std::int64_t n, DeviceKind device) {
  UseDevice use(device);
  return constant(arange(n));
}
// column - row of the last two dimensions: [rows, columns] int64
Tensor diagonals(std::int64_t rows, std::int64_t columns, DeviceKind device) {
  return indices(columns, device) - unsqueeze(indices(rows, device), 1);
}
// column - row for the last two dimensions of x, replicated if x is distributed.
Tensor diagonals_of(const Tensor& x) {
  const Tensor y = diagonals(x.dim(x.rank() - 2), x.dim(x.rank() - 1), x.device());
  if (!x.layout()) return y;
  const std::vector<AxisPlacement> axes(x.layout()->axes.size(), {Placement::replicated, -1, {}});
  return y.with_layout(std::make_shared<Layout>(Layout{x.layout()->grid, y.shape(), axes}));
}
void require_matrices(const char* op, const Tensor& x) {
  require(x.rank() >= 2, "[{}] needs at least two dimensions: {}", op, x);
  require_whole(op, x, std::array{-2, -1});
}
Tensor zeros_beside(const Tensor& x) {
  UseDevice use(x.device());
  return constant(full(Shape{}, 0, x.dtype()));
}

}  // namespace

Tensor full_like(const Tensor& x, Number value) {
  const auto y = broadcast_to(value.like("full_like", x.without_layout()), x.shape()).as_variable();
  return x.layout() && !x.layout()->has(Placement::partial) ? y.with_layout(x.layout()) : y;
}

Tensor clone(const Tensor& x) {
  if (is_floating(x.dtype())) return affine(x, 1, -0.0);  // x + 0 is 0 where x is -0
  return bitwise_or(x, x);
}

Tensor arange(Number start, Number stop, Number step, std::optional<DType> dtype) {
  const bool whole = start.is_integer() && stop.is_integer() && step.is_integer();
  require(step.value() != 0, "[arange] the step is 0");
  const double steps = (stop.value() - start.value()) / step.value();
  require(std::isfinite(steps), "[arange] from {} to {} by {} is not finite", start.value(), stop.value(), step.value());
  const DType type = dtype.value_or(whole ? DType::int64 : DType::float32);
  if (whole) {
    const auto n = start.integer() == stop.integer() ? 0 : std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(steps)));
    return cast(arange(n) * step + start, type);
  }
  const auto n = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(steps)));
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    values[static_cast<std::size_t>(i)] = start.value() + static_cast<double>(i) * step.value();
  return from_vector(Shape{n}, values, type);
}

Tensor linspace(double start, double stop, std::int64_t count, DType dtype, bool endpoint) {
  require(count >= 0, "[linspace] {} numbers", count);
  const std::int64_t intervals = endpoint ? count - 1 : count;
  std::vector<double> values(static_cast<std::size_t>(count), start);
  for (std::int64_t i = 1; i < count; ++i)
    values[static_cast<std::size_t>(i)] = start + static_cast<double>(i) * ((stop - start) / static_cast<double>(intervals));
  if (endpoint && count > 1) values.back() = stop;
  return from_vector(Shape{count}, values, dtype);
}

Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k, DType dtype) {
  return cast(diagonals(rows, columns.value_or(rows), current_device()) == k, dtype).as_variable();
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& x, Indexing indexing) {
  const int n = static_cast<int>(x.size());
  Shape shape;
  for (const auto& axis : x) {
    require(axis.rank() == 1, "[meshgrid] takes tensors of one dimension, got {}", axis);
    shape.push_back(axis.dim(0));
  }
  std::vector<Tensor> result;
  for (int i = 0; i < n; ++i) {
    Shape along;
    for (int d = 0; d < n; ++d) along.push_back(d == i ? shape[d] : 1);
    const Tensor mesh = broadcast_to(reshape(x[static_cast<std::size_t>(i)], along), shape);
    result.push_back(indexing == Indexing::xy && n >= 2 ? swapaxes(mesh, 0, 1) : mesh);
  }
  return result;
}

Tensor tril(const Tensor& x, std::int64_t k) {
  require_matrices("tril", x);
  return where(diagonals_of(x) <= k, x, zeros_beside(x));
}
Tensor triu(const Tensor& x, std::int64_t k) {
  require_matrices("triu", x);
  return where(diagonals_of(x) >= k, x, zeros_beside(x));
}

Tensor diagonal(const Tensor& x, std::int64_t k) {
  require_matrices("diagonal", x);
  const std::int64_t rows = x.dim(x.rank() - 2), columns = x.dim(x.rank() - 1);
  const std::int64_t row = std::max<std::int64_t>(0, -k), column = std::max<std::int64_t>(0, k);
  const std::int64_t n = std::max<std::int64_t>(0, std::min(rows - row, columns - column));
  return take(flatten_from(x, x.rank() - 2), indices(n, x.device()) * (columns + 1) + (row * columns + column), -1);
}

Tensor diag(const Tensor& x, std::int64_t k) {
  if (x.rank() == 2) return diagonal(x, k);
  require(x.rank() == 1, "[diag] takes a vector or a matrix, got {}", x);
  require_whole("diag", x, std::array{0});
  const std::int64_t row = std::max<std::int64_t>(0, -k), column = std::max<std::int64_t>(0, k), n = x.dim(0) + row + column;
  const Tensor of_row = unsqueeze(pad(x, Shape{row}, Shape{column}), 1);
  return where(diagonals(n, n, x.device()) == k, of_row, zeros_beside(x));
}

}  // namespace mpigrad
