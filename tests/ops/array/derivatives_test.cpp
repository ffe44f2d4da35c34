// grad, value_and_grad, jacobian, hessian and hvp against closed forms.

#include <doctest/doctest.h>

#include <vector>

#include "framework/engine/jvp.h"
#include "framework/engine/tape.h"
#include "ops/array/derivatives.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;

Tensor number(double value) { return full({}, value, f64); }
// A matrix with x on its diagonal.
Tensor diagonal_matrix(const Tensor& x) {
  const Tensor i = arange(x.dim(0));
  return where(unsqueeze(i, 1) == i, unsqueeze(x, 1), 0);
}
Tensor cubes(const Tensor& x) { return sum(x * x * x); }

}  // namespace

TEST_CASE("derivatives: gradients, and gradients of gradients") {
  const Tensor x = global_tensor({2, 3}, 1), y = global_tensor({2, 3}, 2);
  require_close("grad", grad(cubes)(x), 3 * square(x));
  const auto [value, gradient] = value_and_grad(FunctionOfTensor(cubes))(x);
  require_close("value", value, cubes(x));
  require_close("gradient", gradient, 3 * square(x));

  const auto fourth = [](const Tensor& z) { return square(square(z)); };
  require_close("first", grad(fourth)(number(1.5)), number(4 * 3.375));
  require_close("second", grad(grad(fourth))(number(1.5)), number(12 * 2.25));
  require_close("third", grad(grad(grad(fourth)))(number(1.5)), number(24 * 1.5));
  require_close("fifth", grad(grad(grad(grad(grad(fourth)))))(number(1.5)), number(0));
  require_close("of a number that is not x's", grad(grad(grad([](const Tensor& z) { return 3 * z; })))(number(1)), number(0));

  const FunctionOfTensors product = [](const std::vector<Tensor>& z) { return sum(square(z[0]) * z[1]); };
  const auto gradients = grad(product)({x, y});
  require_close("of x", gradients[0], 2 * x * y);
  require_close("of y", gradients[1], square(x));
  const auto [total, both] = value_and_grad(product)({x, y});
  require_close("of several", total, sum(square(x) * y));
  require_close("of y with the value", both[1], square(x));

  // Constants are variables of f; a tape around it differentiates again.
  require_close("constant", grad(cubes)(constant(x)), 3 * square(x));
  Tape tape;
  const Tensor g = grad(cubes)(x);
  require_close("a tape around grad", tape.gradient(sum(g * y), {x})[0], 6 * x * y);
}

TEST_CASE("derivatives: Jacobians from the side that is shorter") {
  const Tensor x = global_tensor({3}, 3), matrix = global_tensor({4, 3}, 4);
  const auto linear = [&](const Tensor& z) { return matmul(matrix, z); };
  require_close("matrix", jacobian(linear, x), matrix);  // 4 adjoints
  require_close("squares", jacobian([](const Tensor& z) { return square(z); }, x), diagonal_matrix(2 * x));
  require_close("a number", jacobian(cubes, x), 3 * square(x));
  const auto many = [](const Tensor& z) { return broadcast_to(sin(z), {4, 3}) * from_vector({4, 1}, {1, 2, 3, 4}, f64); };
  const Tensor forward = jacobian(many, x);  // 3 directions: 12 elements of 3
  CHECK(forward.shape() == Shape{4, 3, 3});
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto row = [&](const Tensor& z) { return squeeze(slice(many(z), 0, i, i + 1), {0}); };
    const Tensor wanted = diagonal_matrix(static_cast<double>(i + 1) * cos(x));
    require_close("a part of the forward one", squeeze(slice(forward, 0, i, i + 1), {0}), wanted);
    require_close("the same by adjoints", jacobian(row, x), wanted);
  }
  CHECK(jacobian([](const Tensor& z) { return slice(z, 0, 1, 1); }, x).shape() == Shape{0, 3});
  require_close("without x", jacobian([](const Tensor&) { return from_vector({2}, {1, 2}, f64); }, x), zeros({2, 3}, f64));

  Tape tape;
  const Tensor j = jacobian([](const Tensor& z) { return z * z * z; }, x);
  require_close("a tape around it", tape.gradient(sum(square(j)), {x})[0], 36 * x * x * x);
}

TEST_CASE("derivatives: Hessians, and their products with vectors") {
  const Tensor x = global_tensor({3}, 5), v = global_tensor({3}, 6), matrix = global_tensor({3, 3}, 7);
  require_close("cubes", hessian(cubes, x), diagonal_matrix(6 * x));
  const auto quadratic = [&](const Tensor& z) { return matmul(z, matmul(matrix, z)); };
  const Tensor wanted = matrix + transpose(matrix);
  require_close("quadratic", hessian(quadratic, x), wanted);
  require_close("times a vector", hvp(quadratic, x, v), matmul(wanted, v));
  require_close("cubes times a vector", hvp(cubes, x, v), 6 * x * v);
  require_close("along a direction", jvp(grad(quadratic), x, v), matmul(wanted, v));
  require_close("linear", hessian([](const Tensor& z) { return sum(3 * z); }, x), zeros({3, 3}, f64));
  const Tensor plane = global_tensor({2, 2}, 8);
  CHECK(hessian(cubes, plane).shape() == Shape{2, 2, 2, 2});
  require_close("of a matrix", reshape(hessian(cubes, plane), {4, 4}), diagonal_matrix(reshape(6 * plane, {4})));
}

TEST_CASE("derivatives: refusals") {
  const Tensor x = global_tensor({3}, 1);
  CHECK(has(error_text([] { grad(cubes)(arange(3)); }), "[grad] derivatives are taken with respect to floating-point tensors"));
  CHECK(has(error_text([&] { hvp(cubes, x, global_tensor({2}, 1)); }), "[hvp] x and v are of one type"));
  CHECK(has(error_text([&] { jacobian([](const Tensor& z) { return Tensor(z < 0); }, x); }), "[jacobian] f gives"));
  CHECK(has(error_text([&] { grad([](const Tensor& z) { return 2 * z; })(x); }), "[grad] f gives one floating-point number"));
}

TEST_CASE("derivatives: what a function captures is constant to it") {
  const Tensor v = from_vector({3}, {1, 2, 3}, DType::float64);
  const auto numbers = [](std::initializer_list<double> values) { return std::vector<double>(values); };
  CHECK(grad([&](const Tensor& x) { return sum(x * v); })(v).to_vector() == numbers({1, 2, 3}));
  CHECK(grad([&](const Tensor&) { return sum(square(v)); })(v).to_vector() == numbers({0, 0, 0}));
  CHECK(jacobian([&](const Tensor& x) { return x * v; }, v).to_vector() == numbers({1, 0, 0, 0, 2, 0, 0, 0, 3}));
  CHECK(jvp([&](const Tensor& x) { return x * v; }, v, v).to_vector() == numbers({1, 4, 9}));
  CHECK(hvp([&](const Tensor& x) { return sum(x * x * v); }, v, v).to_vector() == numbers({2, 8, 18}));
  const auto both = grad([](const std::vector<Tensor>& p) { return sum(p[0] * p[0] * p[1]); })({v, v});
  CHECK(both[0].to_vector() == numbers({2, 8, 18}));
  CHECK(both[1].to_vector() == numbers({1, 4, 9}));
  const auto nested = grad([](const Tensor& x) { return sum(grad([&](const Tensor& y) { return sum(x * y * y); })(x)); })(v);
  CHECK(nested.to_vector() == numbers({4, 8, 12}));  // the Hessian of 2 x y at y = x
}
