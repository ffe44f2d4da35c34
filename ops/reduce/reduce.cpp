#include "ops/reduce/reduce.h"

#include <algorithm>

#include "framework/base/joined.h"
#include "ops/complex/complex_operands.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

Shape kept_shape(const Shape& shape, const std::vector<int>& axes) {
  Shape result = shape;
  for (const int axis : axes) result[axis] = 1;
  return result;
}

}  // namespace

Types Sum::infer(Inputs in) const {
  require(is_floating(in[0].dtype()) || in[0].dtype() == DType::int64, "[sum] needs floating-point elements or int64: {}", in[0]);
  return {{kept_shape(in[0].shape(), axes), in[0].dtype()}};
}
LayoutPtr Sum::layout(Inputs in) const { return reduction_layout(traits().name, in[0], axes, true, true); }
Tensors Sum::vjp(const Replay& at, Inputs g) const { return {broadcast_to(g[0], at.input(0).shape())}; }

Types BroadcastTo::infer(Inputs in) const {
  require(broadcast_shapes(traits().name, in[0].shape(), shape) == shape, "[broadcast_to] {} does not broadcast to {}", in[0],
          shape);
  return {{shape, in[0].dtype()}};
}
Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (!g || g.shape() == shape) return g;
  std::vector<int> axes;
  const int extra = g.rank() - shape.rank();
  for (int d = 0; d < g.rank(); ++d)
    if (d < extra || (shape[d - extra] == 1 && g.dim(d) != 1)) axes.push_back(d);
  return reshape(sum(g, axes), shape);
}

Tensors BroadcastTo::vjp(const Replay& at, Inputs g) const { return {sum_to(g[0], at.input(0).shape())}; }

Tensor attains(const Tensor& x, const Tensor& m) { return logical_or(equal(x, m), not_equal(x, x)); }

Types Extremum::infer(Inputs in) const {
  for (const int axis : axes) require(in[0].dim(axis) > 0, "[max/min] of nothing, dimension {} is empty: {}", axis, in[0]);
  return {{kept_shape(in[0].shape(), axes), in[0].dtype()}};
}
LayoutPtr Extremum::layout(Inputs in) const { return reduction_layout(traits().name, in[0], axes, true, false); }
Tensors Extremum::vjp(const Replay& at, Inputs g) const {
  const auto winners = cast(attains(at.input(0), at.output(0)), g[0].dtype());
  return {winners * (g[0] / sum(winners, axes, true))};
}

Types ArgMax::infer(Inputs in) const {
  require(in[0].dim(axis) > 0, "[argmax] of nothing, dimension {} is empty: {}", axis, in[0]);
  Shape shape;
  for (int d = 0; d < in[0].rank(); ++d)
    if (d != axis) shape.push_back(in[0].dim(d));
  return {{shape, DType::int64}};
}
LayoutPtr ArgMax::layout(Inputs in) const { return reduction_layout(traits().name, in[0], std::vector{axis}, false, false); }

}  // namespace ops

namespace {

std::vector<int> normalised(const char* op, const Tensor& x, const std::vector<int>& axes) {
  std::vector<int> result;
  for (const int axis : axes) result.push_back(checked_dimension(op, axis, x.rank()));
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    fail("[{}] a dimension is named twice: {}", op, joined(axes, ", "));
  return result;
}

std::vector<int> all_axes(const Tensor& x) {
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  for (int d = 0; d < x.rank(); ++d) axes[static_cast<std::size_t>(d)] = d;
  return axes;
}

Tensor finished(const Tensor& y, const std::vector<int>& axes, bool keep) { return keep || axes.empty() ? y : squeeze(y, axes); }

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const auto over = normalised("sum", x, axes);
  if (is_complex(x.dtype())) return over.empty() ? x : view_as_complex(sum(view_as_real(x), over, keep));
  if (!is_floating(x.dtype()) && x.dtype() != DType::int64) return sum(cast(x, DType::int64), axes, keep);
  return over.empty() ? x : finished(mpigrad::apply(ops::Sum{over}, {x}), over, keep);
}
Tensor sum(const Tensor& x) { return sum(x, all_axes(x)); }

Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const auto over = normalised("mean", x, axes);
  require(is_differentiable(x.dtype()), "[mean] needs floating-point elements: {}", x);
  if (is_half(x.dtype())) return cast(mean(cast(x, DType::float32), axes, keep), x.dtype());  // float16 ends at 65504
  double count = 1;
  for (const int axis : over) count *= static_cast<double>(x.layout() ? x.layout()->global[axis] : x.dim(axis));
  return sum(x, over, keep) / count;
}
Tensor mean(const Tensor& x) { return mean(x, all_axes(x)); }

Tensor max(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const auto over = normalised("max", x, axes);
  return finished(mpigrad::apply(ops::Extremum{over, true}, {x}), over, keep);
}
Tensor max(const Tensor& x) { return max(x, all_axes(x)); }
Tensor min(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const auto over = normalised("min", x, axes);
  return finished(mpigrad::apply(ops::Extremum{over, false}, {x}), over, keep);
}
Tensor min(const Tensor& x) { return min(x, all_axes(x)); }

Tensor argmax(const Tensor& x, int axis) { return mpigrad::apply(ops::ArgMax{checked_dimension("argmax", axis, x.rank())}, {x}); }

Tensor argmin(const Tensor& x, int axis) {  // negated integers may overflow, inverted ones do not
  return argmax(is_differentiable(x.dtype()) ? -constant(x) : bitwise_invert(x), checked_dimension("argmin", axis, x.rank()));
}

namespace {

// The largest or smallest truth value of x.
Tensor extreme_truth(const char* op, const Tensor& x, const std::vector<int>& axes, bool keep, bool largest) {
  const auto over = normalised(op, x, axes);
  require_whole(op, x, over);  // on every rank, also on ranks with empty blocks
  const Tensor truth = cast(cast(constant(x), DType::boolean), DType::uint8);
  std::int64_t count = 1;
  for (const int axis : over) count *= x.dim(axis);
  if (count > 0) return cast(finished(mpigrad::apply(ops::Extremum{over, largest}, {truth}), over, keep), DType::boolean);
  Shape shape = x.shape();
  for (const int axis : over) shape[axis] = 1;
  UseDevice device(x.device());
  return finished(full(shape, largest ? 0 : 1, DType::boolean), over, keep);
}

}  // namespace

Mask any(const Tensor& x, const std::vector<int>& axes, bool keep) { return Mask(extreme_truth("any", x, axes, keep, true)); }
Mask any(const Tensor& x) { return any(x, all_axes(x)); }
Mask all(const Tensor& x, const std::vector<int>& axes, bool keep) { return Mask(extreme_truth("all", x, axes, keep, false)); }
Mask all(const Tensor& x) { return all(x, all_axes(x)); }

Tensor dot(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), "[dot] shapes differ: {} and {}", a, b);
  if (is_complex(a.dtype()) && is_complex(b.dtype())) return dot(view_as_real(a), view_as_real(b));
  if (detail::any_complex(a, b)) return dot(real(a), real(b));
  return sum(a * b);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : mpigrad::apply(ops::BroadcastTo{shape}, {x});
}

}  // namespace mpigrad
