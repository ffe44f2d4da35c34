// L-BFGS and Gauss-Newton: known minima, split and replicated parameters, ends, misuse.

#include "models/simulation/minimise.h"

#include <cmath>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "models/simulation/fields.h"
#include "models/simulation/global_dot.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2, with the minimum 0 at ones
Tensor rosenbrock(const Tensors& in) {
  const auto n = in[0].dim(0);
  const auto a = slice(in[0], 0, 0, n - 1), b = slice(in[0], 0, 1, n);
  return sum(100.0 * square(b - square(a)) + square(1.0 - a));
}

// Of one rank, with its communicator: in a process with several ranks a plain value does not say over which of them it adds up.
Minimum minimised(const std::function<Tensor(const Tensors&)>& objective, const Tensors& x, LbfgsOptions options = {}) {
  Minimum found;
  on_ranks(1, [&](const Communicator& comm) {
    options.communicator = comm;
    found = lbfgs(objective, x, options);
  });
  return found;
}

}  // namespace

TEST_CASE("lbfgs: Rosenbrock's function in 2 and 50 dimensions") {
  for (const std::int64_t n : {2, 50}) {
    const auto start = n == 2 ? from_vector({2}, {-1.2, 1}, DType::float64) : 0.5 + 0.3 * global_tensor({n}, 1);
    const auto found = minimised(rosenbrock, {start}, {.iterations = 300, .tolerance = 1e-10});
    CAPTURE(found.reason);
    CHECK((found.converged && found.value < 1e-16 && found.iterations < (n == 2 ? 50 : 250)));
    CHECK((found.evaluations >= found.iterations && found.evaluations < 2 * found.iterations + 5));
    require_close("the minimum", found.x[0], ones({n}, DType::float64), 1e-8);
  }
}

TEST_CASE("lbfgs: several tensors, few pairs, float32, ends") {
  const auto a = global_tensor({7}, 1), b = global_tensor({2, 3}, 2), scale = exp(3.0 * global_tensor({7}, 3));
  const auto f = [&](const Tensors& in) {
    return sum(scale * square(in[0] - a)) + sum(square(in[1] - b)) + sum(square(square(in[1] - b))) + 3.0;
  };
  const auto found = minimised(f, {zeros_like(a), zeros_like(b)}, {.pairs = 3, .iterations = 300, .tolerance = 1e-9});
  CHECK((found.converged && std::abs(found.value - 3) < 1e-9 && found.gradient_norm < 1e-6));
  require_close("minimum", found.x[0], a, 1e-8);
  const auto single = cast(a, DType::float32);
  const auto rounded =
      minimised([&](const Tensors& in) { return sum(square(in[0] - single)); }, {zeros_like(single)}, {.tolerance = 0});
  require_close("float32", rounded.x[0], single, 1e-5);
  CHECK((rounded.converged || has(rounded.reason, "rounding")));

  CHECK(minimised(rosenbrock, {zeros({4}, DType::float64)}, {.iterations = 3}).reason == "3 iterations are over");
  int calls = 0;
  const auto stopped = minimised(rosenbrock, {zeros({4}, DType::float64)},
                                 {.after = [&](const Minimum& at) { return ++calls < 2 || at.value < 0; }});
  CHECK((stopped.reason == "stopped by the caller" && stopped.iterations == 2 && !stopped.converged));
  // Values that are not finite: sqrt(x) + 1 / x has its minimum at 4^(1/3); long steps leave its domain.
  const auto walls = minimised([](const Tensors& in) { return sum(sqrt(in[0]) + 1.0 / in[0]); }, {full({1}, 0.3, DType::float64)},
                               {.tolerance = 1e-10, .first_step = 10});
  require_close("domain", walls.x[0], full({1}, std::cbrt(4.0), DType::float64), 1e-5);
}

TEST_CASE("lbfgs and gauss_newton: the same minimum on 1 to 4 ranks, with split and replicated parameters") {
  const Shape shape{1, 7, 3, 2, 1};
  const auto d = [&](const LayoutPtr& layout) { return global_tensor(shape, 1, layout); };
  // A field m and a number s: r = (m - Laplacian m / 10 + m^2 / 5 + s - d, 0.3 m)
  const auto residual = [&](const Tensors& in) {
    const auto& m = in[0];
    const auto model = m - 0.1 * fields::laplacian(m) + 0.2 * square(m) - d(m.layout());
    return Tensors{bias_activation(model, in[1], Activation::none), 0.3 * m};
  };
  const auto run = [&](const LayoutPtr& layout, bool newton) {
    const Tensors start{zeros_like(d(layout)), zeros({1}, DType::float64)};
    if (newton) return gauss_newton(residual, start, {.tolerance = 1e-9, .inner_tolerance = 1e-3});
    const auto objective = [&](const Tensors& in) {
      const auto r = residual(in);
      return 0.5 * (sum(square(r[0])) + sum(square(r[1])));
    };
    const LbfgsOptions options{.iterations = 200, .tolerance = 1e-9};
    return layout ? lbfgs(objective, start, options) : minimised(objective, start, options);
  };
  const auto one = run({}, false), newton = run({}, true);
  CHECK((one.converged && newton.converged));
  CHECK(std::abs(one.value - newton.value) < 1e-12 * one.value);
  CHECK(newton.iterations < 12);
  require_close("field", one.x[0], newton.x[0], 1e-6);
  require_close("number", one.x[1], newton.x[1], 1e-6);
  for (const auto& extents : std::vector<GridExtents>{{.depth = 2}, {.depth = 3}, {.depth = 2, .width = 2}})
    for (const bool gauss : {false, true})
      check_on_ranks(ranks_of(extents), "minimum", [&](const Communicator& comm) {
        Dice dice(3);
        const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
        const auto split = run(layout, gauss);
        const auto& whole = gauss ? newton : one;
        require(
            split.converged && split.iterations == whole.iterations && std::abs(split.value - whole.value) < 1e-12 * whole.value,
            "[test] {} and {} iterations, values {} and {}", split.iterations, whole.iterations, split.value, whole.value);
        const double off = std::max(largest_difference(split.x[0].without_layout(), part_of(whole.x[0], layout).without_layout()),
                                    largest_difference(split.x[1], whole.x[1]));
        require(off < 1e-8, "[test] the minimum is off by {}", off);
      });
}

TEST_CASE("lbfgs: plain shares of an objective; a parameter that is not replicated is refused") {
  check_on_ranks(3, "plain", [](const Communicator& comm) {
    // sum over ranks r of (x - r)^2 has its minimum at 1.
    const auto f = [&](const Tensors& in) { return sum(square(replicate(in[0], comm) - comm.rank())); };
    const Tensors start{full({2}, 5, DType::float64)};
    const auto found = lbfgs(f, start, {.tolerance = 1e-12, .communicator = comm});
    require(found.converged && std::abs(found.value - 4) < 1e-12, "[test] {}: {}", found.reason, found.value);
    require_close("mean", found.x[0], ones({2}, DType::float64), 1e-12);
    const auto wrong = error_text(
        [&] { lbfgs([&](const Tensors& in) { return sum(square(in[0] - comm.rank())); }, start, {.communicator = comm}); });
    require(has(wrong, "[lbfgs] the gradient of a plain parameter differs from rank to rank"), "[test] {}", wrong);
    const auto by_newton = gauss_newton([&](const Tensors& in) { return Tensors{replicate(in[0], comm) - comm.rank()}; }, start,
                                        {.communicator = comm});
    require_close("mean by Gauss-Newton", by_newton.x[0], ones({2}, DType::float64), 1e-8);
  });
}

TEST_CASE("gauss_newton: least squares with known minima") {
  // Linear: the normal equations hold after one step.
  const auto a = global_tensor({9, 4}, 1), b = global_tensor({9, 1}, 2);
  const auto linear = gauss_newton([&](const Tensors& in) { return Tensors{matmul(a, in[0]) - b}; },
                                   {zeros({4, 1}, DType::float64)}, {.tolerance = 1e-10, .inner_tolerance = 1e-13});
  CHECK((linear.converged && linear.iterations == 1));
  require_close("normal equations", matmul(transpose(a), matmul(a, linear.x[0]) - b), zeros({4, 1}, DType::float64), 1e-12);
  // Exact data of y = p exp(-q t) from another start.
  const auto t = arange(12, DType::float64) / 4.0, y = 2.5 * exp(-1.3 * t);
  const auto fit = gauss_newton([&](const Tensors& in) { return Tensors{in[0] * exp(-in[1] * t) - y}; },
                                {ones({1}, DType::float64), ones({1}, DType::float64)},
                                {.tolerance = 1e-12, .damping = 1e-6, .inner_tolerance = 1e-6});
  CAPTURE(fit.reason);
  CHECK((std::abs(fit.x[0].item() - 2.5) < 1e-8 && std::abs(fit.x[1].item() - 1.3) < 1e-8 && fit.iterations < 15));
  CHECK(fit.evaluations > 2 * fit.iterations);
}

TEST_CASE("lbfgs and gauss_newton: misuse is refused by name") {
  const auto x = zeros({2}, DType::float64);
  const auto f = [](const Tensors& in) { return sum(square(in[0])); };
  CHECK(has(error_text([&] { lbfgs(f, {}); }), "[lbfgs] there are no parameters"));
  CHECK(has(error_text([&] { lbfgs(f, {arange(2)}); }), "[lbfgs] parameters are floating-point"));
  CHECK(has(error_text([&] { lbfgs(f, {x}, {.decrease = 0.9, .curvature = 0.5}); }), "0 < decrease < curvature < 1"));
  CHECK(has(error_text([&] { minimised([](const Tensors& in) { return sum(log(in[0])); }, {x}); }),
            "[lbfgs] at the start the value is"));
  CHECK(
      has(error_text([&] { lbfgs([](const Tensors& in) { return in[0]; }, {x}); }), "[gradient] the objective has one element"));
  CHECK(has(error_text([&] { gauss_newton([](const Tensors& in) { return Tensors{log(in[0])}; }, {x}); }),
            "[gauss_newton] at the start"));
  CHECK(has(error_text([&] { gauss_newton([](const Tensors& in) { return in; }, {x}, {.inner_iterations = 0}); }),
            "inner_iterations are positive"));
}
