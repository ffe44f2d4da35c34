// The Taylor test: rates of right derivatives of first and second order, over ranks, and planted errors.

#include "comm/check/taylor_test.h"
#include "comm/collectives/collectives.h"
#include "comm/distributed/invariant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// x^3; its first and its second derivative may be wrong.
struct Cube {
  double slope = 3, curvature = 1;
  static constexpr OpTraits traits() { return {.name = "cube", .keeps_inputs = 1}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return (in[0] * in[0] * in[0]).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const { return {apply(Slope{slope, curvature}, {at.input(0), g[0]})}; }
  // slope x^2 g
  struct Slope {
    double slope, curvature;
    static constexpr OpTraits traits() { return {.name = "cube_slope", .keeps_inputs = 3}; }
    Types infer(Inputs in) const { return {in[0].type()}; }
    Tensor view(Inputs in) const {
      Untaped scope;
      return (square(in[0]) * in[1] * slope).as_variable();
    }
    Tensors vjp(const Replay& at, Inputs g) const {
      return {2 * slope * curvature * at.input(0) * at.input(1) * g[0], slope * square(at.input(0)) * g[0]};
    }
  };
};

double last_rate(const TaylorRemainder& remainder) {
  double last = 0;
  for (const auto& rate : remainder.rate)
    if (rate) last = *rate;
  return last;
}

}  // namespace

TEST_CASE("taylor test: rates 1, 2 and 3 across ranks, and exact ones") {
  for (const int size : {1, 2, 4})
    check_on_ranks(size, "rates", [](const Communicator& comm) {
      const double r = comm.rank();
      const Tensors x{from_vector({3}, {0.3 + r, -0.7, 0.2 * r}, DType::float64), ones({3}, DType::float64)};
      const auto f = [&](const Tensors& in) {
        return Tensors{tanh(allreduce(in[0], comm)) * replicate(in[1], comm), exp(in[0])};
      };
      const TaylorOptions options{.inputs = {Across::varying, Across::same}};
      const auto report = taylor_test(f, x, comm, options);
      require(report.passed && report.message.empty() && report.remainders.size() == 3, "[test] {}", report.message);
      for (std::size_t order = 0; order < 3; ++order) {
        const double rate = last_rate(report.remainders[order]);
        require(std::abs(rate - static_cast<double>(order) - 1) < 0.1, "[test] R{} falls as h^{}\n{}", order, rate,
                to_text(report));
      }
      // Also at 0, where J is 0 and only rounding is left.
      for (const double at : {0.0, 1.0})
        require(taylor_test([&](const Tensors& in) { return Tensors{3 * in[0]}; }, {full({5}, at, DType::float64)}, comm).passed,
                "[test] 3 x at {}", at);
      const auto linear = taylor_test(
          [&](const Tensors& in) {
            return Tensors{reduce_scatter(in[0], comm), in[0] * 3};
          },
          {x[0]}, comm);
      require(linear.passed && linear.remainders[1].exact && linear.remainders[2].exact, "[test] {}", to_text(linear));
      const auto quadratic =
          taylor_test([&](const Tensors& in) { return Tensors{square(allreduce(in[0], comm))}; }, {x[0]}, comm);
      require(quadratic.passed && !quadratic.remainders[1].exact && quadratic.remainders[2].exact, "[test] {}",
              to_text(quadratic));
      require(std::abs(last_rate(quadratic.remainders[1]) - 2) < 1e-4, "[test] {}", to_text(quadratic));
      const auto text = to_text(quadratic);
      require(has(text, "exact") && has(text, " 2.00") && has(text, "R2  rate"), "[test] {}", text);
      const auto once = taylor_test(f, x, comm, {.inputs = options.inputs, .second = false});
      require(once.passed && once.remainders.size() == 2, "[test] {}", to_text(once));
    });
}

TEST_CASE("taylor test: a wrong gradient falls as h, a wrong Hessian as h^2, a kink is named") {
  for (const int size : {1, 3})
    check_on_ranks(size, "planted", [](const Communicator& comm) {
      const Tensors x{from_vector({2}, {1.2 + comm.rank(), -0.4}, DType::float64)};
      const auto test = [&](const Cube& op) {
        return taylor_test([&](const Tensors& in) { return Tensors{allreduce(apply(op, {in[0]}), comm)}; }, x, comm);
      };
      const auto right = test({});
      require(right.passed, "[test] {}\n{}", right.message, to_text(right));
      const auto slope = test({2.9});
      require(!slope.passed && slope.message.starts_with("R1 falls as h^"), "[test] {}", slope.message);
      // Slightly wrong derivatives of either sign: the linear and the quadratic part of R1 cancel somewhere.
      for (const double wrong : {3.006, 2.994, 3.003, 2.997, 3.0006, 2.9994})
        require(!test({wrong}).passed, "[test] the slope {} passed\n{}", wrong, to_text(test({wrong})));
      const auto curvature = test({3, 0.9});
      require(!curvature.passed && curvature.message.starts_with("R2 falls as h^"), "[test] {}", curvature.message);
      const auto kink = taylor_test([](const Tensors& in) { return Tensors{abs(in[0])}; }, {zeros({2}, DType::float64)}, comm);
      require(!kink.passed && has(kink.message, "kink"), "[test] {}", kink.message);
      // The gradient of one rank's copy only: right on one rank, wrong on several.
      const auto lonely = taylor_test(
          [&](const Tensors& in) {
            const Tensor others = constant(allreduce(in[0], comm) - in[0]);
            return Tensors{square(others + in[0])};
          },
          x, comm);
      require(lonely.passed == (comm.size() == 1), "[test] {}", to_text(lonely));
      const auto text = error_text([&] {
        require_taylor("a square", [](const Tensors& in) { return Tensors{constant(square(in[0]))}; }, x, comm,
                       {.second = false});
      });
      require(text.starts_with(fmt::format("[taylor] a square on {} ranks: R1 falls", comm.size())), "[test] {}", text);
    });
}

TEST_CASE("taylor test: single precision, and what is refused") {
  check_on_ranks(2, "edges", [](const Communicator& comm) {
    const Tensors x{from_vector({4}, {0.5, 1.5, -0.5, 2}, DType::float32)};
    const auto report = taylor_test([&](const Tensors& in) { return Tensors{sin(allreduce(in[0], comm))}; }, x, comm);
    require(report.passed, "[test] {}", to_text(report));
    const auto integers = error_text([&] { taylor_test([](const Tensors& in) { return in; }, {arange(3)}, comm); });
    require(integers.starts_with("[taylor_test] inputs are floating-point or complex tensors"), "[test] {}", integers);
    // Too coarse a type, and a constant function: nothing can be observed, so the test must not pass.
    const Tensors half{from_vector({4}, {0.5, 1.5, -0.5, 2}, DType::bfloat16)};
    const auto coarse = taylor_test([](const Tensors& in) { return Tensors{in[0] * 3}; }, half, comm, {.second = false});
    require(!coarse.passed && has(coarse.message, "no rate can be seen"), "[test] {}", coarse.message);
    const auto still = taylor_test([](const Tensors& in) { return Tensors{in[0] * 0}; }, x, comm);
    require(!still.passed && has(still.message, "no rate can be seen"), "[test] {}", still.message);
    const auto weights = error_text([&] {
      taylor_test([](const Tensors& in) { return in; }, x, comm, {.weights = {x[0], x[0]}});
    });
    require(weights.starts_with("[taylor_test] weights have the outputs' number and types; here 2 weights for 1 outputs"),
            "[test] {}", weights);
    const auto steps = error_text([&] { taylor_test([](const Tensors& in) { return in; }, x, comm, {.halvings = 0}); });
    require(steps.starts_with("[taylor_test] halvings"), "[test] {}", steps);
  });
}
