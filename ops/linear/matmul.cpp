#include "ops/linear/matmul.h"

#include <algorithm>

#include "framework/engine/parameter.h"
#include "ops/complex/complex_operands.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise_ops.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

// Rows and columns of op(x).
std::pair<std::int64_t, std::int64_t> extents(const Tensor& x, bool transposed) {
  return transposed ? std::pair{x.dim(-1), x.dim(-2)} : std::pair{x.dim(-2), x.dim(-1)};
}

Shape batch_of(const Shape& shape) { return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 2))); }

}  // namespace

Types Matmul::infer(Inputs in) const {
  require(in[0].rank() >= 2 && in[1].rank() >= 2, "[matmul] operands have at least two dimensions: {} and {}", in[0], in[1]);
  require(in[0].dtype() == in[1].dtype() && is_floating(in[0].dtype()),
          "[matmul] operands are floating-point of one type: {} and {}", in[0], in[1]);
  const auto left = extents(in[0], a.transpose_a), right = extents(in[1], a.transpose_b);
  require(left.second == right.first, "[matmul] inner extents differ, {} and {}: {}{} and {}{}", left.second, right.first, in[0],
          a.transpose_a ? " transposed" : "", in[1], a.transpose_b ? " transposed" : "");
  Shape shape = batch_of(in[0].rank() >= in[1].rank() ? in[0].shape() : in[1].shape());
  shape.push_back(left.first);
  shape.push_back(right.second);
  return {{shape, in[0].dtype()}};
}

Cost Matmul::cost(Inputs in, Outputs out) const {
  const auto k = extents(in[0], a.transpose_a).second;
  return {2.0 * static_cast<double>(out[0].elements()) * static_cast<double>(k),
          static_cast<double>(in[0].bytes() + in[1].bytes() + out[0].bytes())};
}

LayoutPtr Matmul::layout(Inputs in) const {
  for (const auto& x : in)
    if (!x.layout() || x.layout()->has(Placement::split) || x.layout()->has(Placement::partial))
      fail("[matmul] across a split dimension or of a partial sum; {}: {} and {}",
           detail::parameter_hint(in, "gather it with redistribute(), or use a layer, which replicates its weights"), in[0],
           in[1]);
  Layout result = *in[0].layout();
  result.global = infer(in)[0].shape;
  return std::make_shared<Layout>(std::move(result));
}

Tensors Matmul::vjp(const Replay& at, Inputs g) const {
  const auto &x = at.input(0), &y = at.input(1);
  Tensors result(2);
  if (at.wants(0))
    result[0] = sum_to(a.transpose_a ? matmul(y, g[0], {.transpose_a = a.transpose_b, .transpose_b = true})
                                     : matmul(g[0], y, {.transpose_b = !a.transpose_b}),
                       x.shape());
  if (at.wants(1))
    result[1] = sum_to(a.transpose_b ? matmul(g[0], x, {.transpose_a = true, .transpose_b = a.transpose_a})
                                     : matmul(x, g[0], {.transpose_a = !a.transpose_a}),
                       y.shape());
  return result;
}

Types Linear::infer(Inputs in) const {
  const auto &x = in[0], &w = in[1], &bias = in[2];
  require(x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(1), "[linear] weight has {} inputs, x has {}: x {}, weight {}",
          w.dim(-1), x.dim(-1), x, w);
  require(x.dtype() == w.dtype() && is_floating(x.dtype()), "[linear] operands are floating-point of one type: {} and {}", x, w);
  if (bias)
    require(bias.type() == TensorType{Shape{w.dim(0)}, w.dtype()},
            "[linear] bias has one element for each of {} outputs, of the weight's type {}: {}", w.dim(0), name_of(w.dtype()),
            bias);
  return {{Shape{x.dim(0), w.dim(0)}, x.dtype()}};
}

Cost Linear::cost(Inputs in, Outputs out) const {
  return {2.0 * static_cast<double>(out[0].elements()) * static_cast<double>(in[0].dim(1)),
          static_cast<double>(in[0].bytes() + in[1].bytes() + out[0].bytes())};
}

Tensors Linear::vjp(const Replay& at, Inputs g) const {
  const auto inner = bias_activation_adjoint(g[0], at.output(0), fused, {.of_bias = at.wants(2), .may_overwrite = true});
  return {at.wants(0) ? matmul(inner.x, at.input(1)) : Tensor(),
          at.wants(1) ? matmul(inner.x, at.input(0), {.transpose_a = true}) : Tensor(), inner.bias};
}

}  // namespace ops

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulAttributes& attributes) {
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b, attributes), {b.rank() == 1 ? 0 : -2});
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1), attributes), {-1});
  require(a.rank() >= 2 && b.rank() >= 2, "[matmul] operands have at least two dimensions: {} and {}", a, b);
  if (detail::any_complex(a, b)) return detail::matmul_complex(a, b, attributes.transpose_a, attributes.transpose_b);
  // Batches that broadcast along some dimensions are copied to full size first; the kernel can only repeat all or nothing.
  const auto batch_a = ops::batch_of(a.shape()), batch_b = ops::batch_of(b.shape());
  const auto batch = broadcast_shapes("matmul", batch_a, batch_b);
  const auto whole = [&](const Tensor& x, const Shape& own) {
    if (own == batch || own.rank() == 0) return x;
    Shape shape = batch;
    shape.push_back(x.dim(-2));
    shape.push_back(x.dim(-1));
    return broadcast_to(x, shape);
  };
  return mpigrad::apply(ops::Matmul{attributes}, {whole(a, batch_a), whole(b, batch_b)});
}

Tensor vecdot(const Tensor& a, const Tensor& b, int axis) {
  require(axis < 0 && axis >= -std::min(a.rank(), b.rank()),
          "[vecdot] dimension {} is not a negative one, counted from the end of both: {} and {}", axis, a, b);
  require(a.dim(a.rank() + axis) == b.dim(b.rank() + axis), "[vecdot] extents differ along {}: {} and {}", axis, a, b);
  return sum(conj(a) * b, {axis});
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& of_a, const std::vector<int>& of_b) {
  require(of_a.size() == of_b.size(), "[tensordot] {} and {} dimensions", of_a.size(), of_b.size());
  // For a: the remaining dimensions, then the summed ones; for b: the summed ones first.
  std::vector<int> summed_a, summed_b, order_a, order_b;
  Shape result;
  std::int64_t rows = 1, columns = 1, inner = 1;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    summed_a.push_back(checked_dimension("tensordot", of_a[i], a.rank()));
    summed_b.push_back(checked_dimension("tensordot", of_b[i], b.rank()));
    require(a.dim(summed_a.back()) == b.dim(summed_b.back()), "[tensordot] extents of dimensions {} and {} differ: {} and {}",
            of_a[i], of_b[i], a, b);
    inner *= a.dim(summed_a.back());
  }
  const auto is_in = [](const std::vector<int>& axes, int d) { return std::find(axes.begin(), axes.end(), d) != axes.end(); };
  for (int d = 0; d < a.rank(); ++d) {
    if (is_in(summed_a, d)) continue;
    order_a.push_back(d);
    result.push_back(a.dim(d));
    rows *= a.dim(d);
  }
  order_a.insert(order_a.end(), summed_a.begin(), summed_a.end());
  order_b = summed_b;
  for (int d = 0; d < b.rank(); ++d) {
    if (is_in(summed_b, d)) continue;
    order_b.push_back(d);
    result.push_back(b.dim(d));
    columns *= b.dim(d);
  }
  const Tensor left = reshape(permute(a, order_a), Shape{rows, inner}),
               right = reshape(permute(b, order_b), Shape{inner, columns});
  return reshape(matmul(left, right), result);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int dimensions) {
  require(dimensions >= 0 && dimensions <= std::min(a.rank(), b.rank()), "[tensordot] over {} dimensions of {} and {}",
          dimensions, a, b);
  std::vector<int> of_a, of_b;
  for (int d = 0; d < dimensions; ++d) {
    of_a.push_back(a.rank() - dimensions + d);
    of_b.push_back(d);
  }
  return tensordot(a, b, of_a, of_b);
}

Tensor local::linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation) {
  if (is_half(x.dtype()) && w.dtype() == DType::float32) {
    const auto wide = [](const Tensor& t) { return t ? cast(t, DType::float32) : t; };
    return cast(linear(wide(x), w, wide(bias), activation), x.dtype());
  }
  return fused_or_behind(activation, [&](auto fused) { return mpigrad::apply(ops::Linear{fused}, {x, w, bias}); });
}

}  // namespace mpigrad
