// Ops made at run time from functions of the program: derivatives on one rank and over ranks, refusals by name, lifetimes.

#include "ops/external.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "comm/check/adjoint_check.h"
#include "comm/check/taylor_test.h"
#include "comm/distributed/grid.h"
#include "framework/engine/cost.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;
using Values = std::vector<double>;

// p = a b and s = sin(a), elementwise; integer steps[0] scales p.
Types product_types(Inputs x) {
  require(x.size() == 3 && x[0].type() == x[1].type() && x[2].type() == TensorType{{1}, DType::int64},
          "[product] takes two tensors of one type and int64 [1], not {}, {}, {}", x[0], x[1], x[2]);
  return {x[0].type(), x[0].type()};
}
void product(Inputs x, Outputs y) {
  const auto *a = x[0].data<double>(), *b = x[1].data<double>();
  const auto steps = static_cast<double>(*x[2].data<std::int64_t>());
  auto *p = y[0].mutable_data<double>(), *s = y[1].mutable_data<double>();
  for (std::int64_t i = 0; i < x[0].elements(); ++i) p[i] = steps * a[i] * b[i], s[i] = std::sin(a[i]);
}
void product_adjoint(const Replay& at, Inputs g, Outputs xbar) {
  const auto *a = at.input(0).data<double>(), *b = at.input(1).data<double>();
  const auto steps = static_cast<double>(*at.input(2).data<std::int64_t>());
  const auto *p = g[0].data<double>(), *s = g[1].data<double>();
  auto *to_a = xbar[0].mutable_data<double>(), *to_b = xbar[1].mutable_data<double>();
  require(!xbar[2] && !at.wants(2), "[test] an integer has a cotangent");
  for (std::int64_t i = 0; i < at.input(0).elements(); ++i) {
    to_a[i] += steps * p[i] * b[i] + s[i] * std::cos(a[i]);
    to_b[i] += steps * p[i] * a[i];
  }
}
Tensors product_vjp(const Replay& at, Inputs g) {
  const auto &a = at.input(0), &b = at.input(1);
  const auto steps = cast(at.input(2), f64);
  return {steps * g[0] * b + g[1] * cos(a), steps * g[0] * a, {}};
}

const Tensors& point() {
  static const Tensors x{from_vector({3}, {0.5, -1.25, 2}, f64), from_vector({3}, {1.5, 0.25, -0.75}, f64)};
  return x;
}
TensorFunction of_two(const External& op) {
  return [op](const Tensors& x) { return op({x[0], x[1], from_vector({1}, {3}, DType::int64)}); };
}

// Each rank sends twice its x to the next rank, by the program's own messages.
External ring(const Communicator& comm, double factor_of_adjoint = 2) {
  const auto shift = [comm](const Tensor& from, Tensor& to, int by, double factor) {
    const int size = comm.size(), next = (comm.rank() + by + size) % size, previous = (comm.rank() - by + size) % size;
    Tensor scaled = from * factor;
    const std::vector<Message> sends{{.peer = next, .tag = 3, .data = scaled.raw(), .count = from.elements()}};
    const std::vector<Message> receives{{.peer = previous, .tag = 3, .data = to.raw(), .count = to.elements()}};
    comm.transport().exchange(sends, receives, from.dtype());
  };
  return external(
      "ring", [=](Inputs x, Outputs y) { shift(x[0], y[0], 1, 2); },
      [=](const Replay&, Inputs g, Outputs xbar) { shift(g[0], xbar[0], -1, factor_of_adjoint); },
      {.communicates = true, .keeps_inputs = 0});
}

}  // namespace

TEST_CASE("external: a hand-written adjoint passes the checks of first order, and a second order is refused by name") {
  check_on_ranks(1, "external", [](const Communicator& comm) {
    const auto f = of_two(external("product", product, product_adjoint, {.infer = product_types}));
    require_adjoint("product", f, point(), comm, {.second = false});
    require_taylor("product", f, point(), comm, {.second = false});
    const auto report = adjoint_check(f, point(), comm, {.second = false});
    require(report.first > 0 && report.first < 1e-8 && report.entries.contains("product"), "[test] first {}", report.first);
    const std::string refusal =
        "[product] its adjoint is hand-written and has no derivative: a second derivative, and jvp(), need external() with a vjp "
        "that is written in ops";
    require(error_text([&] { adjoint_check(f, point(), comm); }).starts_with(refusal), "[test] adjoint_check");
    require(error_text([&] { jvp(f, point(), point()); }).starts_with(refusal), "[test] jvp");
    require(error_text([&] { taylor_test(f, point(), comm); }).starts_with(refusal), "[test] taylor_test");
  });
}

TEST_CASE("external: a vjp in ops has derivatives of every order") {
  check_on_ranks(1, "external", [](const Communicator& comm) {
    const auto f = of_two(external("product", product, product_vjp, {.infer = product_types}));
    require_adjoint("product", f, point(), comm);
    require_taylor("product", f, point(), comm);
  });
}

TEST_CASE("external: two functions that are each other's transpose") {
  struct Pair {
    static Tensor half(const Tensor& x) {
      return external(
          "half", [](Inputs in, Outputs y) { y[0] = in[0] * 0.5; }, [](const Replay&, Inputs g) { return Tensors{half(g[0])}; },
          {.keeps_inputs = 0})({x})[0];
    }
  };
  check_on_ranks(1, "external", [](const Communicator& comm) {
    require_adjoint(
        "half of a square", [](const Tensors& x) { return Tensors{Pair::half(square(x[0])) * x[1]}; }, point(), comm);
  });
}

TEST_CASE("external: messages of the program's own on 1 to 4 ranks; wrong adjoints are found") {
  for (const int size : {1, 2, 3, 4})
    check_on_ranks(size, "ring", [](const Communicator& comm) {
      const auto check = [&](const External& op, const AdjointOptions& options) {
        return adjoint_check([&](const Tensors& x) { return op({x[0]}); }, {zeros({2, 3}, f64)}, comm, options);
      };
      const auto report = check(ring(comm), {.second = false});
      require(report.passed && report.linear && report.first < 1e-14, "[test] {}", report.message);
      require(!check(ring(comm, 2.001), {.second = false}).passed, "[test] a wrong adjoint passed");
      const auto f = [&](const Tensors& x) { return Tensors{square(ring(comm)({x[0]})[0])}; };
      require_taylor("ring", f, {full({2}, 0.3 + comm.rank(), f64)}, comm, {.second = false});
      const auto wrong = [&](const Tensors& x) { return Tensors{square(ring(comm, 2.1)({x[0]})[0])}; };
      require(!taylor_test(wrong, {full({2}, 0.3 + comm.rank(), f64)}, comm, {.second = false}).passed,
              "[test] wrong, but passed");

      // Only the last rank has an objective, and all take part in its adjoint.
      const auto x = full({2}, 1.0 + comm.rank(), f64);
      Tape tape;
      const auto y = sum(ring(comm)({x})[0]);
      const auto g = comm.rank() + 1 == comm.size() ? tape.gradient(y, {x}) : tape.gradient({}, {x});
      const bool sends_there = (comm.rank() + 2) % comm.size() == 0 || comm.size() == 1;
      require(g[0].to_vector() == Values(2, sends_there ? 2 : 0), "[test] gradient of {}", g[0]);
    });
}

TEST_CASE("external: nothing that the functions compute is recorded, and names outlive their ops") {
  CostLog log;
  {
    std::string name = "a name that is made when the program runs";
    const auto op = external(
        name, [](Inputs x, Outputs y) { y[0] = square(x[0]) * x[0]; },
        [](const Replay& at, Inputs g, Outputs xbar) { xbar[0] = 3.0 * square(at.input(0)) * g[0]; });
    name.assign(name.size(), '?');
    Tape tape;
    const auto y = sum(op({point()[0]})[0]);
    for (const auto& entry : tape.entries()) CHECK((entry.name != "square" && entry.name != "multiply"));
    CHECK(tape.entries()[0].name == "a name that is made when the program runs");
    CHECK(tape.gradient(y, {point()[0]})[0].to_vector() == Values{0.75, 4.6875, 12});
  }
  bool found = false;
  for (const auto& line : log.lines) found = found || line.op == "a name that is made when the program runs, adjoint";
  CHECK(found);
}

TEST_CASE("external: an output in memory of the program is copied, one that is an input is a tensor of its own") {
  Values state{1, 2, 3};
  const auto through = [](const auto& forward) {
    return external("state", forward, [](const Replay&, Inputs g) { return Tensors{g[0] * 2.0}; }, {.keeps_inputs = 0});
  };
  const auto lent = through([&](Inputs, Outputs y) { y[0] = Tensor::over(state.data(), {3}, f64); });
  Tape tape;
  const auto& x = point()[0];
  const auto y = lent({x})[0], z = through([](Inputs in, Outputs out) { out[0] = in[0]; })({x})[0];
  state[0] = 100;
  CHECK(y.to_vector() == Values{1, 2, 3});
  CHECK(z.id() != x.id());
  CHECK(tape.gradient(sum(z * y), {x})[0].to_vector() == Values{3, 1.5, 10});
}

TEST_CASE("external: wrong types, shapes, devices and layouts are refused by name") {
  const auto op = external("product", product, product_adjoint, {.infer = product_types});
  CHECK(error_text([&] {
          op({point()[0], ones({2}, f64), arange(1)});
        }).starts_with("[product] takes two tensors of one type and int64 [1], not float64 [3], float64 [2], int64 [1]"));
  const auto wrong = external(
      "wrong", [](Inputs, Outputs y) { y[0] = ones({2}, f64); },
      [](const Replay&, Inputs g, Outputs xbar) {
        xbar[0] = reshape(g[0], {3, 1});
      });
  CHECK(error_text([&] { wrong({point()[0]}); }) ==
        "[wrong] its output 0 is now float64 [2], but must stay float64 [3] on device cpu");
  const auto crooked = external(
      "crooked", [](Inputs x, Outputs y) { y[0] = x[0]; },
      [](const Replay&, Inputs g, Outputs xbar) {
        xbar[0] = reshape(g[0], {3, 1});
      });
  const auto gradient_of = [&](const External& each) {
    Tape tape;
    return tape.gradient(sum(each({point()[0]})[0]), {point()[0]});
  };
  CHECK(error_text([&] { gradient_of(crooked); }) ==
        "[crooked] its adjoint's result 0 is now float64 [3, 1], but must stay float64 [3] on device cpu");
  const auto short_vjp = external(
      "short", [](Inputs x, Outputs y) { y[0] = x[0]; }, [](const Replay&, Inputs) { return Tensors{}; });
  CHECK(error_text([&] { gradient_of(short_vjp); }) == "[short] its vjp returns 0 cotangents for 1 inputs");
  const auto unkept = external(
      "unkept", [](Inputs x, Outputs y) { y[0] = x[0]; },
      [](const Replay& at, Inputs, Outputs) { (void)at.input(0).data<double>(); }, {.keeps_inputs = 0});
  CHECK(error_text([&] {
          gradient_of(unkept);
        }).starts_with("[unkept] its vjp reads the elements of input 0, which were not kept"));
  const auto copy = [](Inputs x, Outputs y) { y[0] = x[0]; };
  const auto none = [](const Replay&, Inputs g) { return Tensors{g[0]}; };
  CHECK(error_text([&] { external("", copy, none); }) == "[external] the function has no name");
  CHECK(error_text([&] { external("f", ExternalForward(), none); }) == "[external] f has no function");
  CHECK(error_text([&] { external("f", copy, Vjp()); }) == "[external] f has no adjoint");
  CHECK(error_text([&] { External()({ones({1})}); }) == "[external] this is no function: external() makes one");
  CHECK(error_text([&] { external("f", copy, none)({}); }) == "[f] without inputs its options need `infer`");
  CHECK(error_text([&] { external("f", copy, none, {.infer = [](Inputs) { return Types{}; }})({}); }) ==
        "[f] `infer` returns no output");
}

TEST_CASE("external: distributed tensors need a layout in the options") {
  check_on_ranks(2, "layout", [](const Communicator& comm) {
    const auto layout = split_layout(make_grid(comm, {.depth = 2}), {4, 3}, {-1, 0});
    const auto x = full({2, 3}, 1.0 + comm.rank(), f64).with_layout(layout);
    const auto make = [](std::function<LayoutPtr(Inputs)> rule) {
      return external(
          "twice", [](Inputs in, Outputs y) { y[0] = in[0] * 2.0; }, [](const Replay&, Inputs g) { return Tensors{g[0] * 2.0}; },
          {.layout = std::move(rule)});
    };
    require(error_text([&] { make({})({x}); }).starts_with("[twice] is not defined on a distributed tensor"), "[test] layout");
    Tape tape;
    const auto y = make([](Inputs in) { return in[0].layout(); })({x})[0];
    require(y.layout() == layout && y.to_vector() == Values(6, 2.0 + 2 * comm.rank()), "[test] y");
    require(tape.gradient(sum(y.without_layout()), {x})[0].to_vector() == Values(6, 2), "[test] gradient");
  });
}

TEST_CASE("external: the dry device has shapes only") {
  const UseDevice dry(DeviceKind::dry);
  const Tensor a({{3}, f64}), steps({{1}, DType::int64});
  const auto op = external("product", product, product_adjoint, {.infer = product_types});
  Tape tape;
  const auto y = op({a, a, steps});
  CHECK(y[1].type() == a.type());
  CHECK(tape.gradient(sum(y[0] + y[1]), {a})[0].type() == a.type());
}

TEST_CASE("gpu: external: tensors on a GPU reach only functions that accept them") {
  if (no_gpu("external on a GPU")) return;
  const auto x = to(point()[0], DeviceKind::cuda);
  const auto make = [](bool on_gpu) {
    return external(
        "cube", [](Inputs in, Outputs y) { y[0] = square(in[0]) * in[0]; },
        [](const Replay& at, Inputs g, Outputs xbar) { xbar[0] = 3.0 * square(at.input(0)) * g[0]; }, {.runs_on_gpu = on_gpu});
  };
  CHECK(error_text([&] { make(false)({x}); }).starts_with("[cube] runs on CPUs only: set runs_on_gpu"));
  Tape tape;
  CHECK(tape.gradient(sum(make(true)({x})[0]), {x})[0].to_vector() == Values{0.75, 4.6875, 12});
}
