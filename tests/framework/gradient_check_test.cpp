// Tests of the gradient checkers: each must fail on wrong derivatives.

#include "tests/support/gradient_check.h"

#include <doctest/doctest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// y = x^3 with a planted error in its vjp.
enum class Planted { right, wrong, outside_ops, detached };

struct Cube {
  Planted variant = Planted::right;
  static constexpr OpTraits traits() { return {.name = "cube", .keeps_inputs = 1}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Cpu, Inputs in, Outputs out) const {
    for (std::int64_t i = 0; i < in[0].elements(); ++i) {
      const double x = in[0].data<double>()[i];
      out[0].mutable_data<double>()[i] = x * x * x;
    }
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    const auto& x = at.input(0);
    switch (variant) {
      case Planted::right: return {g[0] * square(x) * 3};
      case Planted::wrong: return {g[0] * square(x) * 2.999};
      case Planted::detached: return {g[0] * constant(square(x) * 3)};
      case Planted::outside_ops: break;
    }
    Tensor result(x.type(), x.device());
    for (std::int64_t i = 0; i < x.elements(); ++i)
      result.mutable_data<double>()[i] = 3 * g[0].data<double>()[i] * x.data<double>()[i] * x.data<double>()[i];
    return {result};
  }
};

// y = 2 x. The second derivative with respect to x is zero, so only the cotangent as a variable reveals the error.
struct Twice {
  bool outside_ops = false;
  double adjoint = 2;
  static constexpr OpTraits traits() { return {.name = "twice"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Cpu, Inputs in, Outputs out) const {
    for (std::int64_t i = 0; i < in[0].elements(); ++i) out[0].mutable_data<double>()[i] = 2 * in[0].data<double>()[i];
  }
  Tensors vjp(const Replay&, Inputs g) const {
    if (!outside_ops) return {g[0] * adjoint};
    Tensor result(g[0].type(), g[0].device());
    run(Cpu{}, g, std::span(&result, 1));
    return {result};
  }
};

const Tensors point() { return {from_vector({2, 3}, {0.7, -1.2, 0.4, 1.1, -0.3, 0.9}, DType::float64)}; }

template <class Op>
TensorFunction function_of(const Op& op) {
  return [op](const Tensors& x) { return apply_all(op, x); };
}

}  // namespace

TEST_CASE("the gradient check passes a right op") {
  const auto report = check_gradients(function_of(Cube{}), point());
  INFO(report.message);
  CHECK(report.passed);
  CHECK(report.first < 1e-9);
  CHECK(report.second < 1e-9);
  CHECK(report.entries.contains("cube"));
  CHECK(report.entries.contains("multiply"));
  CHECK(check_gradients(function_of(Twice{}), point()).passed);
}

TEST_CASE("the gradient check fails on a planted wrong vjp") {
  const auto report = check_gradients(function_of(Cube{Planted::wrong}), point());
  CHECK_FALSE(report.passed);
  CHECK(report.first > 1e-4);
  CHECK(report.message.find("first order") != std::string::npos);
}

TEST_CASE("the gradient check fails on a vjp that bypasses ops, at second order only") {
  for (const auto variant : {Planted::outside_ops, Planted::detached}) {
    const auto report = check_gradients(function_of(Cube{variant}), point());
    CHECK_FALSE(report.passed);
    CHECK(report.first < 1e-9);
    CHECK(report.second > 0.01);
    CHECK(check_gradients(function_of(Cube{variant}), point(), {.second_order = false}).passed);
  }
}

TEST_CASE("the gradient check fails on a linear op whose vjp bypasses ops") {
  const auto report = check_gradients(function_of(Twice{.outside_ops = true}), point());
  CHECK_FALSE(report.passed);
  CHECK(report.first < 1e-9);
  CHECK(report.second > 0.01);
}

TEST_CASE("the dot-product test tells a wrong adjoint and a function that is not linear") {
  CHECK(linearity_error(function_of(Twice{}), point()) < 1e-14);
  CHECK(linearity_error(function_of(Twice{.adjoint = 2.001}), point()) > 1e-4);
  CHECK(linearity_error(function_of(Cube{}), point()) > 1e-3);
}

TEST_CASE("the gradient check refuses float32 and functions without a floating-point result") {
  CHECK_THROWS_WITH_AS(check_gradients(function_of(Cube{}), {ones({2})}),
                       "[check_gradients] inputs are float64 or complex128: float32 [2]", Error);
  CHECK_THROWS_AS(check_gradients([](const Tensors& x) { return Tensors{argmax(x[0], 0)}; }, point()), Error);
}
