#include "ops/complex/complex.h"

#include <cstdint>

#include "ops/elementwise/aligned_operands.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

Shape with_extent_two(Shape shape) {
  shape.push_back(2);
  return shape;
}
Shape without_last(const Shape& shape) { return Shape(shape.span().first(static_cast<std::size_t>(shape.rank() - 1))); }

Tensor product(const Tensor& a, const Tensor& b, bool conjugate) {
  return mpigrad::apply(ComplexProduct{.conjugate = conjugate}, {a, b});
}
Tensor quotient(const Tensor& a, const Tensor& b, bool conjugate) {
  return mpigrad::apply(ComplexQuotient{.conjugate = conjugate}, {a, b});
}

Types broadcast_types(std::string_view op, Inputs in, DType second) {
  require(is_complex(in[0].dtype()) && in[1].dtype() == second, "[{}] operands are {} and {}: {} and {}", op,
          name_of(in[0].dtype()), name_of(second), in[0], in[1]);
  return {{broadcast_shapes(op, in[0].shape(), in[1].shape()), in[0].dtype()}};
}

}  // namespace

Types ViewAsReal::infer(Inputs in) const {
  require(is_complex(in[0].dtype()), "[view_as_real] a complex tensor is needed: {}", in[0]);
  return {{with_extent_two(in[0].shape()), real_type(in[0].dtype())}};
}
LayoutPtr ViewAsReal::layout(Inputs in) const {
  Layout result = *in[0].layout();
  result.global.push_back(2);
  return std::make_shared<Layout>(std::move(result));
}

Types ViewAsComplex::infer(Inputs in) const {
  const auto& x = in[0];
  require(x.dtype() == DType::float32 || x.dtype() == DType::float64, "[view_as_complex] float32 or float64 is needed: {}", x);
  require(x.rank() > 0 && x.shape().back() == 2, "[view_as_complex] the last dimension has extent 2, real and imaginary part: {}",
          x);
  return {{without_last(x.shape()), complex_type(x.dtype())}};
}
LayoutPtr ViewAsComplex::layout(Inputs in) const {
  Layout result = *in[0].layout();
  require_whole("view_as_complex", in[0], std::vector<int>{-1});
  result.global = without_last(result.global);
  return std::make_shared<Layout>(std::move(result));
}
Tensor ViewAsComplex::view(Inputs in) const {
  const TensorType type = infer(in)[0];
  const auto& x = in[0];
  if (reinterpret_cast<std::uintptr_t>(x.raw()) % static_cast<std::uintptr_t>(size_of(type.dtype)) == 0)
    return {type, x.storage(), x.offset()};
  Tensor copy(type, x.device());
  detail::copy_bytes(x.device(), copy.raw(), x.raw(), x.bytes());
  return copy;
}

Types ComplexJoin::infer(Inputs in) const {
  require(in[0].type() == in[1].type(), "[complex] real and imaginary part have one shape and type: {} and {}", in[0], in[1]);
  return {{in[0].shape(), complex_type(in[0].dtype())}};
}

Tensors ComplexPart::vjp(const Replay&, Inputs g) const {
  const Tensor none = constant(zeros_like(g[0]));
  return {imaginary ? complex(none, g[0]) : complex(g[0], none)};
}

Tensors ComplexAbs::vjp(const Replay& at, Inputs g) const {
  const Tensor &z = at.input(0), &w = at.output(0);
  return {z * (g[0] / where(w == 0, 1, w))};  // z is 0 where w is 0
}

Types ComplexProduct::infer(Inputs in) const { return broadcast_types(traits().name, in, in[0].dtype()); }
Tensors ComplexProduct::vjp(const Replay& at, Inputs g) const {
  Tensors result(2);
  const Tensor &a = at.input(0), &b = at.input(1);
  if (at.wants(0)) result[0] = sum_to(conjugate ? product(g[0], b, true) : product(b, g[0], true), a.shape());
  if (at.wants(1)) result[1] = sum_to(product(a, g[0], !conjugate), b.shape());
  return result;
}

Types ComplexScale::infer(Inputs in) const { return broadcast_types(traits().name, in, real_type(in[0].dtype())); }
Tensors ComplexScale::vjp(const Replay& at, Inputs g) const {
  Tensors result(2);
  const Tensor &z = at.input(0), &r = at.input(1);
  if (at.wants(0)) result[0] = sum_to(mpigrad::apply(ComplexScale{}, {g[0], r}), z.shape());
  if (at.wants(1)) result[1] = sum_to(real(product(z, g[0], true)), r.shape());
  return result;
}

Types ComplexQuotient::infer(Inputs in) const { return broadcast_types(traits().name, in, in[0].dtype()); }
Tensors ComplexQuotient::vjp(const Replay& at, Inputs g) const {
  Tensors result(2);
  const Tensor &b = at.input(1), &w = at.output(0);
  if (at.wants(0)) result[0] = sum_to(quotient(g[0], b, !conjugate), at.input(0).shape());
  if (at.wants(1)) result[1] = sum_to(-quotient(conjugate ? product(g[0], w, true) : product(w, g[0], true), b, true), b.shape());
  return result;
}

}  // namespace ops

Tensor view_as_real(const Tensor& z) { return mpigrad::apply(ops::ViewAsReal{}, {z}); }
Tensor view_as_complex(const Tensor& x) { return mpigrad::apply(ops::ViewAsComplex{}, {x}); }
Tensor complex(const Tensor& re, const Tensor& im) { return mpigrad::apply(ops::ComplexJoin{}, {re, im}); }
Tensor real(const Tensor& z) { return is_complex(z.dtype()) ? mpigrad::apply(ops::ComplexPart{false}, {z}) : z; }
Tensor imag(const Tensor& z) {
  return is_complex(z.dtype()) ? mpigrad::apply(ops::ComplexPart{true}, {z}) : constant(zeros_like(z));
}
Tensor conj(const Tensor& z) { return is_complex(z.dtype()) ? mpigrad::apply(ops::ComplexConj{}, {z}) : z; }

namespace detail {
namespace {

// Both operands with parts of the wider type. Error, in the name of `op`: types without a common type.
std::pair<Tensor, Tensor> with_equal_parts(std::string_view op, const Tensor& a, const Tensor& b) {
  const auto common = mpigrad::result_type(a.dtype(), b.dtype());
  require(common.has_value(), "[{}] element types differ, cast() one of them: {} and {}", op, a, b);
  const auto fit = [&](const Tensor& x) { return cast(x, is_complex(x.dtype()) ? *common : real_type(*common)); };
  return {fit(a), fit(b)};
}
unsigned read_operands(const Tensor& a, const Tensor& b) { return b.is_constant() ? 2U : a.is_constant() ? 1U : 3U; }

}  // namespace

Tensor add_complex(const Tensor& a, const Tensor& b, bool subtract) {
  const auto [x, y] = with_equal_parts(subtract ? "subtract" : "add", a, b);
  const DType type = complex_type(x.dtype());
  const Tensor left = view_as_real(cast(x, type)), right = view_as_real(cast(y, type));
  return view_as_complex(subtract ? left - right : left + right);
}

Tensor multiply_complex(const Tensor& a, const Tensor& b) {
  if (!is_complex(a.dtype())) return multiply_complex(b, a);
  const auto [x, y] = with_equal_parts("multiply", a, b);
  const auto reads = read_operands(x, y);
  if (is_complex(y.dtype())) return apply_aligned(ops::ComplexProduct{.reads = reads}, Elementwise::product, {x, y});
  return apply_aligned(ops::ComplexScale{.reads = reads}, Elementwise::product, {x, y});
}

Tensor divide_complex(const Tensor& a, const Tensor& b) {
  const auto [x, y] = with_equal_parts("divide", a, b);
  if (!is_complex(y.dtype())) return view_as_complex(view_as_real(x) / unsqueeze(y, -1));
  return apply_aligned(ops::ComplexQuotient{}, Elementwise::quotient, {cast(x, y.dtype()), y});
}

Tensor affine_complex(const Tensor& z, double scale, double shift) {
  const Tensor scaled = scale == 1 ? z : view_as_complex(affine(view_as_real(z), scale, -0.0));
  return shift == 0 ? scaled : complex(affine(real(scaled), 1, shift), imag(scaled));
}

Tensor abs_complex(const Tensor& z) { return mpigrad::apply(ops::ComplexAbs{}, {z}); }

Tensor cast_complex(const Tensor& x, DType dtype) {
  require(is_complex(dtype), "[cast] from complex to {} loses the imaginary part; take real(x), imag(x) or abs(x): {}",
          name_of(dtype), x);
  if (is_complex(x.dtype())) return view_as_complex(cast(view_as_real(x), real_type(dtype)));
  const Tensor re = unsqueeze(cast(x, real_type(dtype)), -1);
  Shape low, high;
  for (int d = 0; d < re.rank(); ++d) low.push_back(0), high.push_back(d + 1 == re.rank() ? 1 : 0);
  return view_as_complex(pad(re, low, high));
}

// One real product: rows [Re a_0, Im a_0, Re a_1, ...] of a, as they lie in memory, and rows [Re b_0, Im b_0, ...] of b, each
// followed by the row of i b.
Tensor matmul_complex(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const auto transposed = [](const Tensor& x, bool needed) {
    if (!needed) return x;
    std::vector<int> order;
    for (int d = 0; d < x.rank() - 2; ++d) order.push_back(d);
    order.push_back(x.rank() - 1), order.push_back(x.rank() - 2);
    return permute(x, order);
  };
  const auto [p, q] = with_equal_parts("matmul", a, b);
  const Tensor x = transposed(p, transpose_a), y = cast(transposed(q, transpose_b), complex_type(q.dtype()));
  require(x.dim(-1) == y.dim(-2), "[matmul] inner extents differ, {} and {}: {} and {}", x.dim(-1), y.dim(-2), a, b);
  const auto with_last_two = [](const Tensor& of, std::int64_t rows, std::int64_t columns) {
    Shape shape = of.shape();
    shape[-2] = rows, shape[-1] = columns;
    return shape;
  };
  Tensor right = view_as_real(y);
  if (is_complex(x.dtype())) {
    const Tensor turned = view_as_real(complex(-imag(y), real(y)));
    right = concatenate({unsqueeze(right, -3), unsqueeze(turned, -3)}, -3);  // [..., k, 2, n, 2]
  }
  const std::int64_t rows_of_b = is_complex(x.dtype()) ? 2 * y.dim(-2) : y.dim(-2);
  right = reshape(right, with_last_two(y, rows_of_b, 2 * y.dim(-1)));
  const Tensor left = is_complex(x.dtype()) ? reshape(view_as_real(x), with_last_two(x, x.dim(-2), 2 * x.dim(-1))) : x;
  const Tensor c = matmul(left, right);  // [..., m, 2 n]
  Shape shape = c.shape();
  shape[-1] = y.dim(-1);
  return view_as_complex(reshape(c, ops::with_extent_two(shape)));
}

}  // namespace detail
}  // namespace mpigrad
