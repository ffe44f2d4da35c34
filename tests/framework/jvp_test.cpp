// Jacobian-vector products: known Jacobians, a Jacobian that spans ranks, derivatives of the result, misuse.

#include "framework/engine/jvp.h"

#include "comm/collectives/reductions.h"
#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor vector64(std::initializer_list<double> values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, DType::float64);
}

}  // namespace

TEST_CASE("jvp: a known Jacobian") {
  // f(a, b) = (a b, sum a^2, exp b, argmax a)
  const auto a = vector64({2, -3}), b = vector64({0.5, 4}), da = vector64({0.25, 1}), db = vector64({-1, 2});
  const auto j = jvp(
      [](const Tensors& x) {
        return Tensors{x[0] * x[1], sum(square(x[0])), exp(x[1]), argmax(x[0], 0)};
      },
      {a, b}, {da, db});
  REQUIRE(j.size() == 4);
  require_close("product", j[0], da * b + a * db, 1e-15);
  require_close("sum of squares", j[1], full({}, 2 * (2 * 0.25 - 3 * 1), DType::float64), 1e-15);
  require_close("exp", j[2], exp(b) * db, 1e-15);
  CHECK((j[3].dtype() == DType::int64 && j[3].item() == 0));
  // Functions of one tensor; outputs that are the input, twice the same tensor, or constant.
  require_close("square", jvp([](const Tensor& x) { return square(x); }, a, da), a * da * 2, 1e-15);
  const auto edges = jvp([](const Tensors& x) { return Tensors{x[0], x[0], ones({2}, DType::float64)}; }, {constant(a)}, {da});
  require_close("identity", edges[0] + edges[1], da * 2, 0);
  require_close("constant", edges[2], zeros_like(da), 0);
  CHECK(jvp([](const Tensor& x) { return x * 2; }, ones({3}), ones({3})).dtype() == DType::float32);
}

TEST_CASE("jvp: under a tape its result is differentiated") {
  // d/dx of (3 x^2 v) w = 6 x v w
  const auto x = vector64({1.5, -2}), v = vector64({1, 3}), w = vector64({0.5, 0.25});
  Tape tape;
  const auto directional = jvp([](const Tensor& at) { return at * at * at; }, x, v);
  require_close("second derivative", tape.gradient(dot(directional, w), {x})[0], x * v * w * 6, 1e-14);
}

TEST_CASE("jvp: across ranks") {
  for (const int size : {1, 2, 3, 5})
    check_on_ranks(size, "jvp", [](const Communicator& comm) {
      const auto held = [](int r) { return vector64({r + 1.0, r == 1 ? 0.0 : 2.0, -0.5 * r}); };
      const auto direction = [](int r) { return vector64({0.5 - r, 1.0, r + 0.25}); };
      const int p = comm.size();
      // d prod = sum over ranks of dx_r times the product of the other factors; with zeros in one and in several factors.
      Tensor expected = zeros({3}, DType::float64);
      for (int r = 0; r < p; ++r) {
        Tensor part = direction(r);
        for (int s = 0; s < p; ++s)
          if (s != r) part = part * held(s);
        expected = expected + part;
      }
      const auto x = held(comm.rank()), v = direction(comm.rank());
      require_close("allreduce prod", jvp([&](const Tensor& at) { return allreduce(at, comm, ReduceOp::prod); }, x, v), expected,
                    1e-13);
      // The neighbour's direction arrives together with its value, also for messages and unused values.
      const auto before = (comm.rank() + p - 1) % p;
      require_close("shift", jvp([&](const Tensor& at) { return square(shift(at, comm)) * at; }, x, v),
                    held(before) * 2 * direction(before) * x + square(held(before)) * v, 1e-13);
    });
}

TEST_CASE("jvp: misuse is refused by name") {
  const auto f = [](const Tensors& in) { return in; };
  const auto x = ones({2}), y = ones({2});
  CHECK(error_text([&] { jvp(f, {x}, {x, y}); }) == "[jvp] 1 tensors and directions for 2");
  CHECK(error_text([&] { jvp(f, {x}, {ones({3})}); }).starts_with("[jvp] x and its direction"));
  CHECK(error_text([&] { jvp(f, {arange(2)}, {arange(2)}); }).starts_with("[jvp] x and its direction"));
}
