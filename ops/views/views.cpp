#include "ops/views/views.h"

#include <algorithm>
#include <numeric>

#include "framework/base/joined.h"
#include "ops/complex/complex_operands.h"
#include "ops/layout_rules.h"

namespace mpigrad {
namespace ops {
namespace {

Shape filled(int rank, std::int64_t value) {
  Shape shape;
  for (int d = 0; d < rank; ++d) shape.push_back(value);
  return shape;
}

std::vector<int> changed_dimensions(const Shape& a, const Shape& b) {
  std::vector<int> result;
  for (int d = 0; d < a.rank(); ++d)
    if (a[d] != b[d]) result.push_back(d);
  return result;
}

void require_indices(std::string_view op, const Tensor& indices) {
  require(indices.dtype() == DType::int64 && indices.rank() == 1, "[{}] indices are int64 and one-dimensional: {}", op, indices);
}

}  // namespace

Types Reshape::infer(Inputs in) const {
  require(shape.elements() == in[0].elements(), "[reshape] {} elements into {}: {}", in[0].elements(), shape, in[0]);
  return {{shape, in[0].dtype()}};
}
LayoutPtr Reshape::layout(Inputs in) const { return reshape_layout(traits().name, in[0], shape, from); }
Tensor Reshape::view(Inputs in) const { return Tensor({shape, in[0].dtype()}, in[0].storage(), in[0].offset()); }
Tensors Reshape::vjp(const Replay& at, Inputs g) const { return {reshape(g[0], at.input(0).shape())}; }

Types Permute::infer(Inputs in) const {
  Shape shape;
  for (const int from : order) shape.push_back(in[0].dim(from));
  return {{shape, in[0].dtype()}};
}
LayoutPtr Permute::layout(Inputs in) const { return permutation_layout(in[0], order); }
Tensors Permute::vjp(const Replay&, Inputs g) const {
  std::vector<int> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return {permute(g[0], inverse)};
}

Types Slice::infer(Inputs in) const {
  const auto& x = in[0];
  require(begin.rank() == x.rank() && end.rank() == x.rank() && step.rank() == x.rank(),
          "[slice] one begin, end and step for each dimension: {} {} {} of {}", begin, end, step, x);
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    require(begin[d] >= 0 && begin[d] <= end[d] && end[d] <= x.dim(d) && step[d] > 0,
            "[slice] {}:{}:{} is outside dimension {} of {}", begin[d], end[d], step[d], d, x);
    shape.push_back((end[d] - begin[d] + step[d] - 1) / step[d]);
  }
  return {{shape, x.dtype()}};
}
LayoutPtr Slice::layout(Inputs in) const {
  const auto local = infer(in)[0].shape;
  return within_axes_layout(traits().name, in[0], changed_dimensions(local, in[0].shape()), local, true);
}
Tensors Slice::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(SlicePut{.begin = begin, .step = step, .shape = at.input(0).shape(), .value = 0}, {g[0]})};
}

Types SlicePut::infer(Inputs in) const {
  require(value == 0 || !is_complex(in[0].dtype()), "[pad] complex tensors are padded with 0, not {}: {}", value, in[0]);
  for (int d = 0; d < shape.rank(); ++d)
    require(begin[d] >= 0 && step[d] > 0 && begin[d] <= shape[d] &&
                (in[0].dim(d) == 0 || begin[d] + (in[0].dim(d) - 1) * step[d] < shape[d]),
            "[pad] {} does not fit in {} from {} by {}, dimension {}", in[0], shape, begin, step, d);
  return {{shape, in[0].dtype()}};
}
SlicePut SlicePut::of_parts() const {
  SlicePut parts = *this;
  parts.begin.push_back(0), parts.step.push_back(1), parts.shape.push_back(2);
  return parts;
}
LayoutPtr SlicePut::layout(Inputs in) const {
  return within_axes_layout(traits().name, in[0], changed_dimensions(shape, in[0].shape()), shape, value == 0);
}
Tensors SlicePut::vjp(const Replay& at, Inputs g) const {
  Shape end = begin;
  for (int d = 0; d < end.rank(); ++d)
    if (at.input(0).dim(d) > 0) end[d] += (at.input(0).dim(d) - 1) * step[d] + 1;
  return {mpigrad::apply(Slice{begin, end, step}, {g[0]})};
}

Types Concatenate::infer(Inputs in) const {
  TensorType type = in[0].type();
  for (std::size_t i = 1; i < in.size(); ++i) {
    Shape other = in[i].shape();
    require(other.rank() == type.shape.rank() && in[i].dtype() == type.dtype, "[concatenate] parts differ: {} and {}", in[0],
            in[i]);
    const auto extent = other[axis];
    other[axis] = type.shape[axis];
    require(other == type.shape, "[concatenate] parts differ outside dimension {}: {} and {}", axis, in[0], in[i]);
    type.shape[axis] += extent;
  }
  return {type};
}
LayoutPtr Concatenate::layout(Inputs in) const {
  LayoutPtr result;
  std::int64_t extent = 0;
  for (const auto& x : in) {
    require(x.layout() && x.layout()->grid == in[0].layout()->grid && x.layout()->axes == in[0].layout()->axes,
            "[concatenate] parts are laid out differently; redistribute one: {} and {}", in[0], x);
    extent += x.dim(axis);
  }
  Shape local = in[0].shape();
  local[axis] = extent;
  return within_axes_layout(traits().name, in[0], std::vector{axis}, local, true);
}
Tensors Concatenate::vjp(const Replay& at, Inputs g) const {
  Tensors result(at.inputs());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto extent = at.input(i).dim(axis);
    if (at.wants(i)) result[i] = slice(g[0], axis, begin, begin + extent);
    begin += extent;
  }
  return result;
}

LayoutPtr Flip::layout(Inputs in) const { return within_axes_layout(traits().name, in[0], axes, in[0].shape(), true); }

Types Take::infer(Inputs in) const {
  require_indices(traits().name, in[1]);
  require(in[0].rank() > 0, "[take] a tensor with rows is needed: {}", in[0]);
  Shape shape = in[0].shape();
  shape[0] = in[1].dim(0);
  return {{shape, in[0].dtype()}};
}
Tensors Take::vjp(const Replay& at, Inputs g) const { return {scatter_add(g[0], at.input(1), at.input(0).dim(0)), {}}; }

Types ScatterAdd::infer(Inputs in) const {
  require_indices(traits().name, in[1]);
  require(in[0].rank() > 0 && in[0].dim(0) == in[1].dim(0), "[scatter_add] one index for each row: {} and {}", in[0], in[1]);
  require(rows >= 0, "[scatter_add] the number of rows is not negative, got {}: {}", rows, in[0]);
  Shape shape = in[0].shape();
  shape[0] = rows;
  return {{shape, in[0].dtype()}};
}
Tensors ScatterAdd::vjp(const Replay& at, Inputs g) const { return {take(g[0], at.input(1)), {}}; }

Types OneHot::infer(Inputs in) const {
  require(!is_floating(in[0].dtype()), "[one_hot] indices are integers: {}", in[0]);
  Shape shape = in[0].shape();
  shape.push_back(classes);
  return {{shape, dtype}};
}
LayoutPtr OneHot::layout(Inputs in) const {
  Layout result = *in[0].layout();
  result.global.push_back(classes);
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace ops

Tensor reshape(const Tensor& x, const std::vector<std::int64_t>& extents) {
  Shape shape;
  int unknown = -1;
  std::int64_t known = 1;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    require(extents[d] >= -1, "[reshape] extent {} is not possible", extents[d]);
    if (!(extents[d] >= 0 || unknown < 0)) fail("[reshape] only one extent may be -1: [{}]", joined(extents, ", "));
    if (extents[d] < 0) unknown = static_cast<int>(d);
    else known *= extents[d];
    shape.push_back(std::max<std::int64_t>(extents[d], 0));
  }
  if (unknown >= 0) {
    if (!(known > 0 && x.elements() % known == 0)) fail("[reshape] {} does not fit [{}]", x, joined(extents, ", "));
    shape[unknown] = x.elements() / known;
  }
  return reshape(x, shape);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  // A distributed tensor's local shapes may agree on one rank and differ on another: all ranks must do the same.
  return x.shape() == shape && !x.layout() ? x : mpigrad::apply(ops::Reshape{shape, {}}, {x});
}

Tensor squeeze(const Tensor& x, const std::vector<int>& axes) {
  Shape shape;
  std::vector<int> from;
  std::vector<bool> remove(static_cast<std::size_t>(x.rank()));
  for (const int axis : axes) remove[static_cast<std::size_t>(checked_dimension("squeeze", axis, x.rank()))] = true;
  for (int d = 0; d < x.rank(); ++d) {
    require(!remove[static_cast<std::size_t>(d)] || x.dim(d) == 1, "[squeeze] dimension {} is not 1: {}", d, x);
    if (!remove[static_cast<std::size_t>(d)]) shape.push_back(x.dim(d)), from.push_back(d);
  }
  return from.size() == static_cast<std::size_t>(x.rank()) ? x : mpigrad::apply(ops::Reshape{shape, from}, {x});
}

Tensor unsqueeze(const Tensor& x, int axis) {
  axis = checked_dimension("unsqueeze", axis, x.rank() + 1);
  Shape shape;
  std::vector<int> from;
  for (int d = 0; d <= x.rank(); ++d) {
    if (d == axis) shape.push_back(1), from.push_back(-1);
    if (d < x.rank()) shape.push_back(x.dim(d)), from.push_back(d);
  }
  return mpigrad::apply(ops::Reshape{shape, from}, {x});
}

Tensor flatten_from(const Tensor& x, int axis) {
  axis = checked_dimension("flatten_from", axis, x.rank());
  if (axis == x.rank() - 1) return x;
  Shape shape;
  std::vector<int> from;
  for (int d = 0; d < axis; ++d) shape.push_back(x.dim(d)), from.push_back(d);
  shape.push_back(x.shape().elements(axis, x.rank())), from.push_back(-1);
  return mpigrad::apply(ops::Reshape{shape, from}, {x});
}

Tensor permute(const Tensor& x, const std::vector<int>& order) {
  std::vector<int> from;
  for (const int d : order) from.push_back(checked_dimension("permute", d, x.rank()));
  auto sorted = from;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> identity(static_cast<std::size_t>(x.rank()));
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity) fail("[permute] ({}) is not a permutation of the dimensions of {}", joined(order, ", "), x);
  return from == identity ? x : mpigrad::apply(ops::Permute{from}, {x});
}

Tensor transpose(const Tensor& x) {
  require(x.rank() == 2, "[transpose] a matrix is needed: {}", x);
  return permute(x, {1, 0});
}

Tensor slice(const Tensor& x, const Shape& begin, const Shape& end, const Shape& step) {
  return mpigrad::apply(ops::Slice{begin, end, step}, {x});
}
Tensor slice(const Tensor& x, const Shape& begin, const Shape& end) { return slice(x, begin, end, ops::filled(x.rank(), 1)); }
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  axis = checked_dimension("slice", axis, x.rank());
  Shape first = ops::filled(x.rank(), 0), last = x.shape();
  first[axis] = begin, last[axis] = end;
  return slice(x, first, last);
}

Tensor pad(const Tensor& x, const Shape& low, const Shape& high, double value) {
  require(low.rank() == x.rank() && high.rank() == x.rank(), "[pad] one amount for each dimension: {} and {} for {}", low, high,
          x);
  Shape shape = x.shape();
  for (int d = 0; d < x.rank(); ++d) {
    require(low[d] >= 0 && high[d] >= 0, "[pad] amounts are not negative, {} and {} in dimension {}: {}", low[d], high[d], d, x);
    shape[d] += low[d] + high[d];
  }
  if (shape == x.shape()) return x;
  return mpigrad::apply(ops::SlicePut{.begin = low, .step = ops::filled(x.rank(), 1), .shape = shape, .value = value}, {x});
}

Tensor pad(const Tensor& x, std::initializer_list<std::int64_t> low, std::initializer_list<std::int64_t> high, double value) {
  for (const auto amounts : {low, high})
    for (const auto amount : amounts) require(amount >= 0, "[pad] amounts are not negative, got {}: {}", amount, x);
  return pad(x, Shape(low), Shape(high), value);
}

Tensor concatenate(const std::vector<Tensor>& parts, int axis) {
  require(!parts.empty(), "[concatenate] of nothing");
  axis = checked_dimension("concatenate", axis, parts[0].rank());
  return parts.size() == 1 ? parts[0] : mpigrad::apply(ops::Concatenate{axis}, parts);
}

Tensor flip(const Tensor& x, const std::vector<int>& axes) {
  std::vector<int> dimensions;
  for (const int axis : axes) dimensions.push_back(checked_dimension("flip", axis, x.rank()));
  return dimensions.empty() ? x : mpigrad::apply(ops::Flip{dimensions}, {x});
}

Tensor take(const Tensor& x, const Tensor& indices) { return mpigrad::apply(ops::Take{}, {x, indices}); }
Tensor scatter_add(const Tensor& x, const Tensor& indices, std::int64_t rows) {
  if (is_complex(x.dtype())) return view_as_complex(scatter_add(view_as_real(x), indices, rows));
  return mpigrad::apply(ops::ScatterAdd{rows}, {x, indices});
}
Tensor one_hot(const Tensor& indices, std::int64_t classes, DType dtype) {
  return mpigrad::apply(ops::OneHot{classes, dtype}, {indices});
}

}  // namespace mpigrad
