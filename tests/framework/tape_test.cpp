// The tape: recording, gradients, and refused uses. For memory see tape_memory_test.cpp, for derivatives of ops see
// op_derivatives_test.cpp.

#include "framework/engine/tape.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

#include "framework/engine/op.h"
#include "framework/engine/parameter.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/framework/float64_vector.h"
#include "tests/support/gradient_check.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

void check_values(const Tensor& x, std::initializer_list<double> expected) {
  const auto values = x.to_vector();
  REQUIRE(values.size() == expected.size());
  std::size_t i = 0;
  for (const double value : expected) CHECK(values[i++] == doctest::Approx(value).epsilon(1e-12));
}

// Ops with wrong behaviour.
struct Unwanted {
  static constexpr OpTraits traits() { return {.name = "unwanted"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Cpu, Inputs in, Outputs out) const {
    std::copy_n(in[0].data<double>(), in[0].elements(), out[0].mutable_data<double>());
  }
  Tensors vjp(const Replay&, Inputs) const { fail("[unwanted] not requested"); }
};
struct TooFew {
  static constexpr OpTraits traits() { return {.name = "too_few"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Cpu, Inputs, Outputs out) const { std::fill_n(out[0].mutable_data<double>(), out[0].elements(), 0.0); }
  Tensors vjp(const Replay&, Inputs) const { return {}; }
};
struct WrongType {
  static constexpr OpTraits traits() { return {.name = "wrong_type"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Cpu, Inputs, Outputs out) const { std::fill_n(out[0].mutable_data<double>(), out[0].elements(), 0.0); }
  Tensors vjp(const Replay&, Inputs g) const { return {reshape(g[0], {2, 1})}; }
};

}  // namespace

TEST_CASE("tape: without a tape nothing is recorded") {
  CHECK_FALSE(Tape::recording());
  const auto x = vector64({1, 2});
  const auto y = exp(x);
  Tape tape;
  CHECK(Tape::recording());
  CHECK(Tape::innermost() == &tape);
  CHECK(tape.entries().empty());
  check_values(tape.gradient(sum(y), {x})[0], {0, 0});
}

TEST_CASE("tape: first, second and third order of a closed form") {
  const auto x = vector64({1, -2, 0.5});
  Tape tape;
  const auto y = sum(square(square(x)));  // x^4
  const auto g = tape.gradient(y, {x}, Record::yes)[0];
  check_values(g, {4, -32, 0.5});
  const auto h = tape.gradient(sum(g), {x}, Record::yes)[0];
  check_values(h, {12, 48, 3});
  const auto k = tape.gradient(sum(h), {x})[0];
  check_values(k, {24, -48, 12});
  CHECK(tape.entries().empty());
}

TEST_CASE("tape: a tape around a tape sees the replay of the inner one") {
  const auto x = vector64({1, -2, 0.5});
  Tape outer;
  Tensor g;
  {
    Tape inner;
    CHECK(Tape::innermost() == &inner);
    g = inner.gradient(sum(square(square(x))), {x})[0];
  }
  CHECK(Tape::innermost() == &outer);
  check_values(outer.gradient(sum(g), {x})[0], {12, 48, 3});
}

TEST_CASE("tape: a tensor that is used twice gets both cotangents") {
  const auto x = vector64({3, 4});
  Tape tape;
  const auto y = x * x + x;
  check_values(tape.gradient(sum(y * x), {x})[0], {3 * 9 + 2 * 3, 3 * 16 + 2 * 4});
}

TEST_CASE("tape: gradients of intermediate results, of the objective itself, and of one tensor asked for twice") {
  const auto x = vector64({2});
  Tape tape;
  const auto y = square(x);
  const auto z = y * 3;
  const auto g = tape.gradient(z, {x, y, z, y});
  check_values(g[0], {12});
  check_values(g[1], {3});
  check_values(g[2], {1});
  check_values(g[3], {3});
}

TEST_CASE("tape: constants are not recorded and get no cotangent") {
  const auto x = vector64({2, 3});
  const auto c = constant(x);
  CHECK(c.is_constant());
  CHECK(c.id() != x.id());
  CHECK(c.data<double>() == x.data<double>());
  Tape tape;
  const auto from_constants = exp(c) * c + 1;
  CHECK(from_constants.is_constant());
  CHECK(tape.entries().empty());
  const auto y = x * c;
  CHECK_FALSE(y.is_constant());
  CHECK(tape.entries().size() == 1);
  check_values(tape.gradient(sum(y), {x})[0], {2, 3});
}

TEST_CASE("tape: comparisons and integers are constants") {
  const auto x = vector64({2, 3});
  Tape tape;
  CHECK(less(x, x).is_constant());
  CHECK(argmax(x, 0).is_constant());
  CHECK(cast(x, DType::int64).is_constant());
}

TEST_CASE("tape: Untaped suspends all tapes of the thread") {
  const auto x = vector64({2});
  Tape outer, tape;
  Tensor y = square(x), detached;
  const auto before = tape.entries().size();
  {
    Untaped scope;
    CHECK_FALSE(Tape::recording());
    CHECK(Tape::innermost() == nullptr);
    detached = square(y);
    Tape own;  // an inner tape starts empty
    const auto z = square(x);
    check_values(own.gradient(z, {x})[0], {4});
  }
  CHECK(Tape::recording());
  CHECK(tape.entries().size() == before);
  CHECK(outer.entries().size() == before);
  check_values(tape.gradient(sum(y * detached), {x})[0], {16 * 4});
}

TEST_CASE("tape: without an objective, or where nothing depends on it, gradients are zeros") {
  const auto x = vector64({2, 1}), other = ones({3});
  {
    Tape tape;
    const auto y = square(x);
    const auto g = tape.gradient({}, {x, other});
    check_values(g[0], {0, 0});
    check_values(g[1], {0, 0, 0});
    CHECK(g[1].type() == other.type());
  }
  Tape tape;
  const auto y = sum(square(x));
  check_values(tape.gradient(y, {other})[0], {0, 0, 0});
}

TEST_CASE("tape: vjp takes cotangents of any shape") {
  const auto x = vector64({2, 3});
  Tape tape;
  const auto y = square(x), z = exp(x * 0.0);
  check_values(tape.vjp({y, z}, {vector64({1, 10}), vector64({5, 5})}, {x})[0], {4, 60});
}

TEST_CASE("tape: vjps outside what was asked for are not run") {
  const auto x = vector64({2}), w = vector64({5});
  Tape tape;
  const auto y = mpigrad::apply(Unwanted{}, {x}) * w;
  check_values(tape.gradient(y, {w})[0], {2});
}

TEST_CASE("tape: two tapes side by side and tapes of two threads do not see each other") {
  const auto x = vector64({2});
  Tape first;
  const auto y = square(x);
  Tape second;
  const auto z = y * x;
  CHECK(first.entries().size() == 2);
  CHECK(second.entries().size() == 1);
  check_values(second.gradient(z, {x, y})[0], {4});
  check_values(first.gradient(z, {x})[0], {12});

  Tape here;
  double there = 0;
  std::thread([&] {
    CHECK_FALSE(Tape::recording());
    Tape tape;
    there = tape.gradient(sum(exp(x)), {x})[0].item();
  }).join();
  CHECK(here.entries().empty());
  CHECK(there == doctest::Approx(std::exp(2.0)));
}

TEST_CASE("tape: make() runs once per tape and key") {
  const auto x = vector64({2});
  int key = 0, other = 0, calls = 0;
  const auto make = [&] { return ++calls, square(x); };
  Tape tape;
  const auto a = tape.memoised(x.id(), &key, make), b = tape.memoised(x.id(), &key, make);
  CHECK(a.id() == b.id());
  CHECK(calls == 1);
  CHECK(tape.memoised(x.id(), &other, make).id() != a.id());
  CHECK(calls == 2);
}

TEST_CASE("tape: gradients of parameters, and of their gradients") {
  Parameters parameters;
  parameters.add("w", vector64({1, 2}), true);
  parameters.add("b", from_vector({}, {3}, f64), false);
  parameters.pack();
  Tape tape(parameters);
  const auto &w = parameters[0].value, &b = parameters[1].value;
  const auto g = tape.gradient(sum(square(w)) * b, {.record = Record::yes});
  REQUIRE(g.size() == 2);
  check_values(g[0], {6, 12});
  check_values(g[1], {5});
  const auto h = tape.gradient(dot(g[0], vector64({1, 10})));  // Hessian times (1, 10, 0)
  check_values(h[0], {6, 60});
  check_values(h[1], {2 + 40});
}

TEST_CASE("tape: micro-batches accumulate to the gradient of the whole batch") {
  Parameters parameters;
  parameters.add("w", random_normal({3, 4}, {.key = 1}, 0, 1, f64), true);
  parameters.add("b", random_normal({3}, {.key = 2}, 0, 1, f64), false);
  parameters.add("unused", ones({2}, f64), true);
  parameters.pack();
  const auto x = constant(random_normal({6, 4}, {.key = 3}, 0, 1, f64)),
             y = constant(random_normal({6, 3}, {.key = 4}, 0, 1, f64));
  const auto loss = [&](std::int64_t begin, std::int64_t end) {
    const auto prediction =
        local::linear(slice(x, 0, begin, end), parameters[0].value, parameters[1].value, Activation::leaky_relu(0.1));
    return mse(prediction, slice(y, 0, begin, end), Reduction::sum) / 18;
  };
  const auto gradient = [&](std::int64_t begin, std::int64_t end, bool accumulate) {
    Tape tape(parameters);
    return tape.gradient(loss(begin, end), {.accumulate = accumulate});
  };
  const auto whole = gradient(0, 6, false);
  gradient(0, 2, true);
  gradient(2, 3, true);
  const auto parts = gradient(3, 6, false);
  const auto again = gradient(0, 6, false);  // nothing is left over
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(largest_difference(parts[i], whole[i]) < 1e-14);
    CHECK(largest_difference(again[i], whole[i]) == 0);
  }
  CHECK(whole[0].to_vector()[0] != 0);
}

TEST_CASE("tape: misuse is refused by name") {
  const auto x = vector64({1, 2});
  Tape tape;
  CHECK_THROWS_WITH_AS(tape.gradient(x), "[gradient] this tape was made without parameters: name the tensors to differentiate",
                       Error);
  CHECK_THROWS_WITH_AS(tape.gradient(x, {x}), "[gradient] the objective has one element per rank: float64 [2]", Error);
  CHECK_THROWS_WITH_AS(tape.gradient(arange(1), {x}), "[gradient] the objective is floating-point: int64 [1]", Error);
  CHECK_THROWS_WITH_AS(tape.vjp({x}, {}, {x}), "[vjp] 1 outputs and 0 cotangents", Error);
  CHECK_THROWS_AS(tape.vjp({x}, {vector64({1})}, {x}), Error);
}

TEST_CASE("tape: a vjp that returns the wrong thing is refused by name") {
  const auto x = vector64({1, 2});
  {
    Tape tape;
    const auto y = mpigrad::apply(TooFew{}, {x});
    CHECK_THROWS_WITH_AS(tape.vjp({y}, {y}, {x}), "[too_few] its vjp returns 0 cotangents for 1 inputs", Error);
  }
  Tape tape;
  const auto y = mpigrad::apply(WrongType{}, {x});
  CHECK_THROWS_WITH_AS(tape.vjp({y}, {y}, {x}), "[wrong_type] its vjp returns float64 [2, 1] for input 0, which is float64 [2]",
                       Error);
}

TEST_CASE("tape: what would silently give zeros is refused") {
  const auto x = full({2}, 3, f64);
  const auto before = sum(x * x);
  Tape tape;
  const auto y = sum(x * x);
  CHECK_THROWS_WITH_AS(tape.gradient(before, {x}), doctest::Contains("not computed under this tape"), Error);
  CHECK(tape.gradient(y, {x})[0].to_vector() == std::vector<double>{6, 6});
  CHECK_THROWS_WITH_AS(tape.gradient(y, {x}), doctest::Contains("spent"), Error);
}

TEST_CASE("tape: suspension outlives tapes and leaves new ones alone") {
  const auto x = full({1}, 3, f64);
  auto outer = std::make_unique<Tape>();
  {
    const Untaped scope;
    outer.reset();
    CHECK_FALSE(Tape::recording());
    Tape inner;
    CHECK(inner.gradient(sum(x * x), {x})[0].item() == 6);
  }
  CHECK_FALSE(Tape::recording());
  auto made_inside = [] {
    const Untaped scope;
    return std::make_unique<Tape>();
  }();
  CHECK(made_inside->gradient(sum(x * x), {x})[0].item() == 6);
}

TEST_CASE("tape: more operands than there are bits") {
  std::vector<Tensor> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(full({1}, i, f64).as_variable());
  Tape tape;
  const auto gradients = tape.gradient(sum(square(concatenate(parts, 0))), parts);
  for (std::size_t i = 0; i < parts.size(); ++i) CHECK(gradients[i].item() == 2 * static_cast<double>(i));
}
