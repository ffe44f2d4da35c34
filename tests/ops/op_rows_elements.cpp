// Rows of the table of ops: elementwise ops, reductions and views.

#include <cstdint>
#include <vector>

#include "framework/tensor/layout.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/logsumexp.h"
#include "ops/softmax/softmax.h"
#include "ops/views/pack_boxes.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/ops/op_rows.h"

namespace mpigrad::testing {
namespace {

#define F(...) [](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

Tensor indices() { return from_vector({5}, {2, 0, 2, 1, 2}, DType::int64); }
Tensor mask(const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<double>(i % 3 == 0));
  return from_vector(shape, values, DType::boolean);
}
// Integers from 0 to 7, from numbers between 0 and 1.
Tensor whole(const Tensor& x) { return cast(constant(x) * 8, DType::int32); }
// Boxes of the views' tensors: 11 elements, some of them twice.
std::vector<Box> overlapping_boxes() { return {{{0, 0, 2}, {3, 2, 3}}, {{1, 1, 2}, {2, 2, 3}}, {{0, 0, 0}, {1, 1, 4}}}; }

}  // namespace

std::vector<Row> elementwise_rows() {
  const Shape s{3, 4};
  std::vector<Row> rows{
      {"affine", {{s}}, F(affine(x[0], -1.7, 0.3))},
      {"negate", {{s}}, F(-x[0]), true},
      {"exp", {{s}}, F(exp(x[0]))},
      {"expm1", {{s}}, F(expm1(x[0]))},
      {"log", {{s, 0.5, 2}}, F(log(x[0]))},
      {"log1p", {{s, -0.5, 2}}, F(log1p(x[0]))},
      {"sqrt", {{s, 0.5, 2}}, F(sqrt(x[0]))},
      {"square", {{s}}, F(square(x[0]))},
      {"reciprocal", {{s, 0.5, 2}}, F(reciprocal(x[0]))},
      {"pow of a number", {{s, 0.5, 2}}, F(pow(x[0], 2.6))},
      {"pow 0", {{s, 0.5, 2}}, F(pow(x[0], 0.0))},
      {"abs", {apart(s)}, F(abs(x[0]))},
      {"sign", {apart(s)}, F(sign(x[0]))},
      {"floor", {apart(s, -2.3, 2.2)}, F(floor(x[0]))},
      {"ceil", {apart(s, -2.3, 2.2)}, F(ceil(x[0]))},
      {"round", {apart(s)}, F(round(x[0]))},
      {"trunc", {apart(s, -2.3, 2.2)}, F(trunc(x[0]))},
      {"exp2", {{s}}, F(exp2(x[0]))},
      {"log2", {{s, 0.5, 2}}, F(log2(x[0]))},
      {"log10", {{s, 0.5, 2}}, F(log10(x[0]))},
      {"rsqrt", {{s, 0.5, 2}}, F(rsqrt(x[0]))},
      {"sin", {{s}}, F(sin(x[0]))},
      {"cos", {{s}}, F(cos(x[0]))},
      {"tan", {{s}}, F(tan(x[0]))},
      {"asin", {{s, -0.7, 0.7}}, F(asin(x[0]))},
      {"acos", {{s, -0.7, 0.7}}, F(acos(x[0]))},
      {"atan", {{s, -2, 2}}, F(atan(x[0]))},
      {"sinh", {{s}}, F(sinh(x[0]))},
      {"cosh", {{s}}, F(cosh(x[0]))},
      {"tanh", {{s}}, F(tanh(x[0]))},
      {"asinh", {{s, -2, 2}}, F(asinh(x[0]))},
      {"acosh", {{s, 1.5, 3}}, F(acosh(x[0]))},
      {"atanh", {{s, -0.7, 0.7}}, F(atanh(x[0]))},
      {"erf", {{s}}, F(erf(x[0]))},
      {"erfc", {{s}}, F(erfc(x[0]))},
      {"erfinv", {{s, -0.7, 0.7}}, F(erfinv(x[0]))},
      {"lgamma", {{s, 2.5, 5}}, F(lgamma(x[0]))},
      {"lgamma below 0", {{s, -0.7, -0.3}}, F(lgamma(x[0]))},
      {"digamma", {{s, 1, 3}}, F(digamma(x[0]))},
      {"polygamma", {{s, 1, 3}}, F(polygamma(2, x[0]))},
      {"sigmoid", {{s, -3, 3}}, F(sigmoid(x[0]))},
      {"softplus", {{s, -3, 3}}, F(softplus(x[0]))},
      {"relu", {apart(s)}, F(relu(x[0]))},
      {"leaky_relu", {apart(s)}, F(leaky_relu(x[0], 0.1))},
      {"leaky_relu_adjoint", {{s}, apart(s)}, F(leaky_relu_adjoint(x[0], x[1], {0.1}))},
      {"clamp", {apart(s)}, F(clamp(x[0], -0.32, 0.57))},
      {"add", {{s}, {s}}, F(x[0] + x[1]), true},
      {"add, first repeats", {{{4}}, {{2, 3, 4}}}, F(x[0] + x[1]), true},
      {"add, both repeat", {{{3, 1}}, {{2, 1, 4}}}, F(x[0] + x[1]), true},
      {"subtract", {{{2, 3, 4}}, {{3, 1}}}, F(x[0] - x[1]), true},
      {"multiply", {{s}, {s}}, F(x[0] * x[1])},
      {"multiply, first repeats", {{Shape{}}, {s}}, F(x[0] * x[1])},
      {"multiply, both repeat", {{{3, 1}}, {{2, 1, 4}}}, F(x[0] * x[1])},
      {"multiply by a constant", {{s}}, F(square(x[0] * constant(ones_like(x[0]) * 2) * x[0]))},
      {"multiply a constant", {{{3, 1}}}, F(square(constant(full({4}, 3, x[0].dtype())) * x[0]))},
      {"multiply by itself", {{s}}, F(x[0] * x[0])},
      {"divide", {{s}, {s, 0.5, 2}}, F(x[0] / x[1])},
      {"divide, first repeats", {{{4}}, {s, 0.5, 2}}, F(x[0] / x[1])},
      {"divide, second repeats", {{s}, {{3, 1}, 0.5, 2}}, F(x[0] / x[1])},
      {"divide by a number", {{s}}, F(x[0] / 1.3), true},
      {"divide a number", {{s, 0.5, 2}}, F(1.3 / x[0])},
      {"maximum", {apart(s), apart(s, -1.1, 0.93)}, F(maximum(x[0], x[1]))},
      {"maximum, second repeats", {apart(s), apart({4}, -0.9, 1.13)}, F(maximum(x[0], x[1]))},
      {"minimum", {apart(s), apart(s, -1.1, 0.93)}, F(minimum(x[0], x[1]))},
      {"pow", {{s, 0.5, 2}, {s}}, F(pow(x[0], x[1]))},
      {"pow, both repeat", {{{3, 1}, 0.5, 2}, {{2, 1, 4}}}, F(pow(x[0], x[1]))},
      {"remainder", {{s, -0.9, -0.1}, {s, 1.1, 1.9}}, F(remainder(x[0], x[1]))},
      {"remainder, second repeats", {{s, -0.9, -0.1}, {{3, 1}, 1.1, 1.9}}, F(square(remainder(x[0], x[1])))},
      {"remainder by a number", {apart(s)}, F(square(x[0] % 0.65))},
      {"floor_divide", {{s, -0.9, -0.1}, {s, 1.1, 1.9}}, F(floor_divide(x[0], x[1]), x[0] * x[1])},
      {"atan2", {{s}, {s, 0.5, 2}}, F(atan2(x[0], x[1]))},
      {"atan2, both repeat", {{{3, 1}}, {{2, 1, 4}, 0.5, 2}}, F(atan2(x[0], x[1]))},
      {"hypot", {{s, 0.5, 2}, {s, -2, -0.5}}, F(hypot(x[0], x[1]))},
      {"copysign", {apart(s), apart(s, -0.9, 1.13)}, F(square(copysign(x[0], x[1])) * x[0])},
      {"nextafter", {{s}, {s, 2, 3}}, F(square(nextafter(x[0], x[1])))},
      {"logaddexp", {{s}, {s}}, F(logaddexp(x[0], x[1]))},
      {"logaddexp, first repeats", {{{4}, -3, 3}, {s, -3, 3}}, F(logaddexp(x[0], x[1]))},
      // Ops of integers and booleans, and a product that has derivatives.
      {"bits",
       {{s, 0, 1}, {s, 0, 1}},
       F(x[0] * x[1], whole(x[0]) & whole(x[1]), whole(x[0]) | whole(x[1]), whole(x[0]) ^ whole(x[1]))},
      {"shifts",
       {{s, 0, 1}, {s, 0, 1}},
       F(x[0] * x[1], bitwise_left_shift(whole(x[0]), whole(x[1])), bitwise_right_shift(whole(x[0]), whole(x[1])))},
      {"comparisons",
       {apart(s), apart(s, -1.1, 0.93)},
       F(x[0] * x[1], x[0] == x[1], x[0] != x[1], x[0] < x[1], x[0] <= x[1], logical_xor(x[0] < x[1], x[0] < 0),
         logical_and(x[0] < x[1], x[0] < 0), logical_or(x[0] < x[1], x[0] < 0))},
      {"where", {{s}, {s}}, F(where(mask({3, 4}), x[0], x[1])), true},
      {"where, all repeat", {{{3, 1}}, {Shape{}}}, F(where(mask({1, 4}), x[0], x[1])), true},
      {"where of a comparison", {apart(s), {s}}, F(where(greater(x[0], x[1] * 0.0), square(x[0]), x[0] * x[1]))},
      // Rounding to float32 hides small steps; a quadratic is exact with large ones.
      {"cast", {{s}}, F(square(cast(cast(x[0], DType::float32), x[0].dtype()))), false, 0.5, 1e-5},
  };
  // Functions with kinks at 0 and 3 only, if any.
#define MPIGRAD_MAKE(Function, name, ...)                                                        \
  rows.push_back({#name, {apart(s, -2.9, 2.9)}, F(apply(ops::Unary<ops::Function>{}, {x[0]}))}); \
  rows.push_back({#name "_adjoint", {{s}, apart(s, -2.9, 2.9)}, F(ops::activation_adjoint(scalar::Function{}, x[0], x[1]))});
  MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
  return rows;
}

std::vector<Row> reduction_rows() {
  const Shape s{2, 3, 4};
  return {
      {"sum of all", {{s}}, F(sum(x[0])), true},
      {"sum over dimensions", {{s}}, F(sum(x[0], {0, 2})), true},
      {"sum, kept", {{s}}, F(sum(x[0], {-1}, true)), true},
      {"sum of a square", {{s}}, F(sum(square(x[0]), {1}))},
      {"mean of all", {{s}}, F(mean(x[0])), true},
      {"mean over dimensions", {{s}}, F(mean(x[0], {1}, true)), true},
      {"max of all", {apart(s)}, F(max(x[0]))},
      {"max over dimensions", {apart(s)}, F(max(x[0], {0, 2}))},
      {"max of a product", {apart(s), {s, 0.98, 1.02}}, F(max(x[0] * x[1], {1}, true))},
      {"min over a dimension", {apart(s)}, F(square(min(x[0], {-1})))},
      {"dot", {{s}, {s}}, F(dot(x[0], x[1]))},
      {"broadcast_to", {{{3, 1}}}, F(broadcast_to(x[0], {2, 3, 4})), true},
      {"softmax", {{s}}, F(softmax(x[0]))},
      {"softmax along the first dimension", {{s}}, F(softmax(x[0], 0))},
      {"log_softmax", {{s}}, F(log_softmax(x[0]))},
      {"log_softmax along the middle", {{s}}, F(log_softmax(x[0], 1))},
      {"logsumexp", {{s}}, F(logsumexp(x[0], {-1}))},
      {"logsumexp along the middle, kept", {{s}}, F(logsumexp(x[0], {1}, true))},
      {"logsumexp of a matrix's columns", {{{3, 4}}}, F(logsumexp(x[0], {0}))},
      {"exp_scaled by rows", {{{3, 4}}, {{3, 1}}, {{3, 1}}}, F(exp_scaled(x[0], x[1], x[2]))},
      {"exp_scaled by columns", {{{3, 4}}, {{1, 4}}, {{1, 4}}}, F(exp_scaled(x[0], x[1], x[2]))},
      {"logsumexp of several, kept", {{s}}, F(logsumexp(x[0], {0, 2}, true))},
  };
}

std::vector<Row> view_rows() {
  const Shape s{3, 4, 5};
  return {
      {"reshape", {{s}}, F(reshape(x[0], {4, -1})), true},
      {"reshape of a product", {{s}}, F(reshape(square(x[0]), {60}) * reshape(x[0], {60}))},
      {"squeeze", {{{3, 1, 2, 1}}}, F(squeeze(x[0], {1, -1})), true},
      {"unsqueeze", {{s}}, F(unsqueeze(x[0], -1)), true},
      {"permute", {{{2, 3, 4, 5}}}, F(permute(x[0], {2, 0, 3, 1})), true},
      {"transpose", {{{3, 5}}}, F(transpose(x[0])), true},
      {"slice", {{s}}, F(slice(x[0], {1, 0, 2}, {3, 4, 4})), true},
      {"slice with steps", {{s}}, F(slice(x[0], {0, 1, 0}, {3, 4, 5}, {2, 2, 3})), true},
      {"slice of one dimension", {{s}}, F(slice(x[0], 1, 1, 3)), true},
      {"slice, squared", {{s}}, F(square(slice(x[0], {0, 1, 0}, {3, 4, 5}, {2, 2, 3})))},
      {"slice to nothing", {{s}}, F(slice(x[0], 1, 2, 2), sum(x[0])), true},
      {"pad", {{s}}, F(pad(x[0], {1, 0, 2}, {0, 3, 1})), true},
      {"pad with a value", {{s}}, F(square(pad(x[0], {1, 0, 2}, {0, 3, 1}, 0.7)))},
      {"concatenate", {{{2, 3}}, {{2, 1}}, {{2, 4}}}, F(concatenate({x[0], x[1], x[2]}, -1)), true},
      {"concatenate with itself", {{{2, 3}}}, F(square(concatenate({x[0], x[0] * 2}, 0)))},
      {"pack_boxes", {{s}}, F(pack_boxes(x[0], overlapping_boxes())), true},
      {"add_boxes", {{s}, {{11}}}, F(add_boxes(x[0], x[1], overlapping_boxes())), true},
      {"with_packed_boxes",
       {{s}},
       F(with_packed_boxes(x[0], overlapping_boxes()).x, square(with_packed_boxes(x[0], overlapping_boxes()).packed))},
      {"flip", {{s}}, F(flip(x[0], {0, -1})), true},
      {"to", {{s}}, F(mpigrad::apply(ops::ToDevice{.device = DeviceKind::cpu}, {x[0]})), true},
      {"take", {{{3, 2}}}, F(take(x[0], indices())), true},
      {"take, squared", {{{3, 2}}}, F(square(take(x[0], indices())))},
      {"scatter_add", {{{5, 2}}}, F(scatter_add(x[0], indices(), 4)), true},
      {"scatter_add, squared", {{{5, 2}}}, F(square(scatter_add(x[0], indices(), 4)))},
      {"dropout", {{s}}, F(dropout(x[0], 0.6, {.key = 3, .stream = 9})), true},
  };
}

#undef F

}  // namespace mpigrad::testing
