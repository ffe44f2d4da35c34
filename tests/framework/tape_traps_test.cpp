// Common mistakes with tapes and their messages: ops that keep too little, tapes that begin too late, gradients between
// micro-batches.

#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/warning.h"
#include "framework/engine/op.h"
#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;

Tensor vector64(std::initializer_list<double> values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, f64);
}

void check_values(const Tensor& x, const std::vector<double>& expected) { CHECK(x.to_vector() == expected); }

// Sines whose vjp reads a tensor that was not kept, in different ways.
enum class Reads : std::uint8_t { input, output, renamed, elements };
template <Reads reads>
struct ForgetfulSine {
  static constexpr OpTraits traits() { return {.name = "forgetful_sine", .keeps_outputs = reads == Reads::output ? 1 : 0}; }
  Types infer(Inputs in) const { return {in[0].type(), in[0].type()}; }
  void run(Cpu, Inputs in, Outputs out) const {
    for (auto& y : out)
      for (std::int64_t i = 0; i < y.elements(); ++i) y.mutable_data<double>()[i] = std::sin(in[0].data<double>()[i]);
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    switch (reads) {
      case Reads::input: return {g[0] * cos(at.input(0))};
      case Reads::output: return {g[0] * at.output(1)};
      case Reads::renamed: return {g[0] * cos(constant(at.input(0)))};
      case Reads::elements: return {g[0] * at.input(0).to_vector()[0]};
    }
    return {};
  }
};

}  // namespace

TEST_CASE("ops: a struct inside a function is an op") {
  struct Cube {
    static constexpr OpTraits traits() { return {.name = "cube", .keeps_inputs = 1}; }
    Types infer(Inputs in) const { return {in[0].type()}; }
    void run(Cpu, Inputs in, Outputs out) const {
      for (std::int64_t i = 0; i < in[0].elements(); ++i) {
        const double x = in[0].data<double>()[i];
        out[0].mutable_data<double>()[i] = x * x * x;
      }
    }
    Tensors vjp(const Replay& at, Inputs g) const { return {g[0] * 3 * square(at.input(0))}; }
  };
  const auto x = vector64({1, -2});
  Tape tape;
  const auto y = apply(Cube{}, {x});
  CHECK(y.to_vector() == std::vector<double>{1, -8});
  CHECK(tape.vjp({y}, {ones({2}, f64)}, {x})[0].to_vector() == std::vector<double>{3, 12});
}

TEST_CASE("tape: a vjp that reads what its op does not keep is told the op and the member that would keep it") {
  const auto x = vector64({1, 2});
  const auto text = [&](const auto& op) {
    Tape tape;
    const auto y = apply_all(op, {x})[0];
    return error_text([&] { tape.vjp({y}, {ones({2}, f64)}, {x}); });
  };
  CHECK(text(ForgetfulSine<Reads::input>{}) ==
        "[forgetful_sine] its vjp reads the elements of input 0, which were not kept: the op's traits() need "
        "`.keeps_inputs = 1`, where bit i is input i: float64 [2]");
  CHECK(text(ForgetfulSine<Reads::output>{}) ==
        "[forgetful_sine] its vjp reads the elements of output 1, which were not kept: the op's traits() need "
        "`.keeps_outputs = 3`, where bit i is output i: float64 [2]");
  CHECK(text(ForgetfulSine<Reads::elements>{}).starts_with("[forgetful_sine] its vjp reads the elements of input 0"));
  // Under another identity the tape cannot know the tensor.
  CHECK(text(ForgetfulSine<Reads::renamed>{}) ==
        "[cos] an operand's elements were not kept, in the vjp of forgetful_sine; its keeps_inputs and keeps_outputs select what "
        "is: float64 [2]");
}

TEST_CASE("tape: zeros of what was used before the tape began come with a warning") {
  const auto x = vector64({1, 2}), w = vector64({3, 4});
  const auto before = square(x);
  detail::take_warnings();
  const auto differentiate = [&] {
    Tape tape;
    return tape.gradient(sum(before * w), {w, x});
  };
  const auto g = differentiate();
  check_values(g[0], {1, 4});
  check_values(g[1], {0, 0});
  differentiate();
  const auto warnings = detail::take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].starts_with("[gradient] nothing under this tape uses tensor 1 of those asked for, so its gradient is zero"));
  CHECK(warnings[0].ends_with("float64 [2]"));
}

TEST_CASE("tape: zeros that are meant come without a warning") {
  const auto x = vector64({1, 2}), w = vector64({3, 4}), never = vector64({1});
  detail::take_warnings();
  for (int step = 0; step < 2; ++step) {  // only the first uses x, and so does its replay
    Tape tape;
    tape.gradient(step == 0 ? sum(square(x) * w) : sum(square(w)), {x, w, never});
  }
  sum(square(w));  // reads w, which is used under the tape, too
  {
    Tape tape;
    check_values(tape.gradient(sum(square(w)), {w, never})[0], {6, 8});
  }
  {
    Tape tape;
    {
      const Untaped scope;  // a target
      square(x);
    }
    tape.gradient(sum(square(w)), {x, w});
  }
  {
    Tape tape;  // a rank without an objective
    square(x);
    tape.gradient({}, {w});
  }
  CHECK(detail::take_warnings().empty());
}

TEST_CASE("tape: a gradient between micro-batches is kept apart or refused") {
  Parameters parameters;
  parameters.add("w", vector64({1, 2}), true);
  parameters.pack();
  const auto& w = parameters[0].value;
  const auto gradient = [&](double factor, const GradientOptions& options) {
    Tape tape(parameters);
    return tape.gradient(sum(w) * factor, options)[0];
  };
  gradient(1, {.accumulate = true});
  CHECK(parameters.accumulating());
  {
    Tape tape(parameters);
    check_values(tape.gradient(sum(square(w)), {w})[0], {2, 4});
  }
  CHECK_THROWS_WITH_AS(gradient(10, {}), doctest::Contains("[gradient] the parameters keep gradients of earlier micro-batches"),
                       Error);
  CHECK_THROWS_WITH_AS(gradient(10, {.record = Record::yes}), doctest::Contains("say {.accumulate = true}"), Error);
  gradient(100, {.accumulate = true});
  check_values(gradient(1000, {.accumulate = false}), {1101, 1101});
  CHECK_FALSE(parameters.accumulating());
  check_values(gradient(10, {}), {10, 10});
  gradient(1, {.accumulate = true});
  parameters.drop_accumulated();
  check_values(gradient(10, {}), {10, 10});
}
