// Solves and fixed points: derivatives of two orders by the implicit function theorem, bits that do not depend on the number of
// ranks, reports, misuse; inner products over ranks.

#include "models/simulation/implicit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/check/taylor_test.h"
#include "comm/collectives/collectives.h"
#include "comm/halos/periodic.h"
#include "models/simulation/global_dot.h"
#include "ops/array/creation.h"
#include "ops/array/derivatives.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor product(const Tensor& matrix, const Tensor& x) { return reshape(matmul(matrix, reshape(x, {-1, 1})), {-1}); }

// k u - Laplacian of u with unit spacing on a periodic box: symmetric, and positive definite for positive k.
Tensor screened(const Tensor& k, const Tensor& u) {
  auto y = k * u;
  for (const int axis : {1, 2, 3}) y = y + 2.0 * u - roll(u, 1, axis) - roll(u, -1, axis);
  return y;
}
// The same with a drift along depth: not symmetric.
Tensor drifting(const Tensor& k, const Tensor& u) { return screened(k, u) + 0.4 * (u - roll(u, 1, 1)); }

}  // namespace

TEST_CASE("global_dot: the bits do not depend on the cuts, and the sum is accurate") {
  const auto x = global_tensor({1, 50, 4, 3, 2}, 1) * exp(20.0 * global_tensor({1, 50, 4, 3, 2}, 2));
  const auto y = global_tensor(x.shape(), 3);
  const auto a = x.to_vector(), b = y.to_vector();
  long double exact = 0;
  for (std::size_t i = 0; i < a.size(); ++i) exact += static_cast<long double>(a[i]) * static_cast<long double>(b[i]);
  const double whole = global_dot(x, y);
  CHECK(std::abs(whole - static_cast<double>(exact)) <= 1e-13 * std::abs(static_cast<double>(exact)));
  CHECK(global_dot(flip(x, {0, 1, 2, 3, 4}), flip(y, {0, 1, 2, 3, 4})) == whole);
  for (const int size : {1, 2, 3, 4, 7})
    check_on_ranks(size, "global_dot", [&](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(size));
      const auto grid = make_grid(comm, {.depth = comm.size()});
      const auto layout = with_random_cuts(activation_layout(grid, x.shape()), dice);
      const double split = global_dot(part_of(x, layout), part_of(y, layout));
      require(split == whole, "[test] split {}, whole {}", split, whole);
      const auto same = replicated_layout(grid, x.shape());
      require(global_dot(x.with_layout(same), y.with_layout(same)) == whole, "[test] replicated");
      const auto part = [&](const Tensor& t) { return part_of(t, layout).without_layout(); };
      require(global_dot(part(x), part(y), comm) == whole, "[test] plain parts");
      require(global_dot({part_of(x, layout), ones({3})}, {part_of(y, layout), ones({3})}) == whole + 3, "[test] lists");
    });
  CHECK(global_dot(zeros({3}), zeros({3})) == 0);
  CHECK(global_dot(ones({0}), ones({0})) == 0);
  CHECK(std::isnan(global_dot(full({2}, INFINITY), ones({2}))));
  CHECK(std::isnan(global_dot(full({2}, NAN), ones({2}))));
  CHECK(global_norm(from_vector({2}, {3, 4})) == 5);
  CHECK(global_dot(from_vector({3}, {1e8, 1, -1e8}), ones({3})) == 1);
  CHECK(has(error_text([] { global_dot(ones({2}), ones({3})); }), "[global_dot] takes"));
  CHECK(has(error_text([] { global_dot(arange(2), arange(2)); }), "[global_dot] takes"));
}

TEST_CASE("solve: derivatives of two orders, one entry, symmetric or not, with A^T given or made") {
  const auto m = global_tensor({6, 6}, 1), b = global_tensor({6}, 2);
  const auto spd = [](const Tensor& at) { return matmul(at, transpose(at)) + 2.0 * eye(6, {}, 0, DType::float64); };
  const auto general = [](const Tensor& at) { return at + 4.0 * eye(6, {}, 0, DType::float64); };
  on_ranks(1, [&](const Communicator& comm) {
    for (const int kind : {0, 1, 2}) {
      const auto f = [&](const Tensors& in) {
        const auto matrix = kind == 0 ? spd(in[0]) : general(in[0]);
        SolveOptions options{.tolerance = 1e-14};
        if (kind > 0) options.solver = Solver::bicgstab;
        if (kind == 2) options.transposed = [matrix](const Tensor& v) { return product(transpose(matrix), v); };
        return Tensors{solve([matrix](const Tensor& x) { return product(matrix, x); }, in[1], options)};
      };
      require_adjoint("solve", f, {m, b}, comm, {.tolerance = 1e-9, .difference_tolerance = 1e-6});
      require_taylor("solve", f, {m, b}, comm);
    }
  });
  // A u = b holds, the iterations leave one entry, and both reports are filled.
  const auto reports = std::make_shared<SolveReports>();
  const auto matrix = spd(m);
  Tape tape;
  const auto u = solve([matrix](const Tensor& x) { return product(matrix, x); }, b,
                       {.tolerance = 1e-12, .adjoint_tolerance = 1e-6, .reports = reports});
  CHECK(tape.entries().size() == 1);
  require_close("A u", product(matrix, u), b, 1e-11);
  tape.gradient(sum(u), {b});
  CHECK((reports->forward.residual <= 1e-12 && reports->adjoint.residual <= 1e-6 && reports->adjoint.residual > 0));
  CHECK((reports->forward.iterations <= 8 && reports->adjoint.iterations > 0 &&
         reports->adjoint.iterations <= reports->forward.iterations));
}

TEST_CASE("solve: on ranks the bits of solutions and gradients are those of one rank") {
  const Shape shape{1, 6, 3, 1, 1};
  const auto run = [&](const LayoutPtr& layout, bool symmetric) {
    const auto k = square(global_tensor(shape, 1, layout)) + 0.5, b = global_tensor(shape, 2, layout);
    Tape tape;
    SolveOptions options{.tolerance = 1e-12};
    if (!symmetric) options.solver = Solver::bicgstab;
    options.preconditioner = [k](const Tensor& r) { return r / (k + 6.0); };
    const auto u = solve([k, symmetric](const Tensor& x) { return symmetric ? screened(k, x) : drifting(k, x); }, b, options);
    auto all = tape.gradient(sum(sin(u)), {k, b});
    all.push_back(u);
    return all;
  };
  for (const bool symmetric : {true, false}) {
    const auto whole = run({}, symmetric);
    for (const int size : {1, 2, 3, 4})
      check_on_ranks(size, "solve", [&](const Communicator& comm) {
        Dice dice(static_cast<std::uint64_t>(size));
        const auto grid = make_grid(comm, size == 4 ? GridExtents{.depth = 2, .height = 2} : GridExtents{.depth = size});
        const auto layout = with_random_cuts(activation_layout(grid, shape), dice);
        const auto split = run(layout, symmetric);
        for (std::size_t i = 0; i < split.size(); ++i) {
          // The made transpose adds halos in an order that depends on the cuts.
          const double off = largest_difference(split[i].without_layout(), part_of(whole[i], layout).without_layout());
          require(off <= (symmetric || i == 2 ? 0 : 1e-10), "[test] result {} is off by {}", i, off);
        }
      });
  }
}

TEST_CASE("solve: adjoint check of A with messages, plain parts of a vector, and inside recompute()") {
  for (const int size : {1, 3})
    check_on_ranks(size, "solve", [](const Communicator& comm) {
      const auto f = [&](const Tensors& in) {
        const auto k = square(in[0]) + 3.0;
        const auto A = [k, &comm](const Tensor& x) { return k * x - allreduce(x, comm) / (2.0 * comm.size()); };
        return Tensors{
            recompute([A, &comm](const Tensor& b) { return solve(A, b, {.tolerance = 1e-14, .communicator = comm}); }, in[1])};
      };
      const auto seed = static_cast<std::uint64_t>(comm.rank());
      require_adjoint("solve", f, {global_tensor({3}, 7 + seed), global_tensor({3}, 77 + seed)}, comm,
                      {.tolerance = 1e-9, .difference_tolerance = 1e-6});
    });
}

TEST_CASE("solve: a preconditioner saves iterations; a start; float32; a zero right side") {
  const auto d = exp(3.0 * global_tensor({200}, 1)), b = global_tensor({200}, 2);
  const auto A = [d](const Tensor& x) { return d * x; };
  const auto iterations = [&](SolveOptions options) {
    options.reports = std::make_shared<SolveReports>();
    solve(A, b, options);
    return options.reports->forward.iterations;
  };
  const auto inverse = [d](const Tensor& r) { return r / d; };
  for (const auto solver : {Solver::conjugate_gradients, Solver::bicgstab}) {
    CHECK(iterations({.solver = solver}) > 20);
    CHECK(iterations({.solver = solver, .preconditioner = inverse}) <= 2);
    CHECK(iterations({.solver = solver, .start = b / d}) == 0);
  }
  const auto half = cast(d, DType::float32);
  require_close("float32", solve([half](const Tensor& x) { return half * x; }, cast(b, DType::float32), {.tolerance = 1e-6}),
                cast(b / d, DType::float32), 1e-4);
  require_close("zero", solve(A, zeros({200}, DType::float64)), zeros({200}, DType::float64), 0);
}

TEST_CASE("solve: misuse is refused by name") {
  const auto b = global_tensor({5}, 1), d = from_vector({5}, {1, 10, 100, 1000, 10000}, DType::float64);
  const auto text = [&](const TensorMap& A, const SolveOptions& options = {}) {
    return error_text([&] { solve(A, b, options); });
  };
  const auto many = text([&](const Tensor& x) { return d * x; }, {.iterations = 3});
  CHECK((has(many, "[solve] no convergence: |b - A u| / |b| is ") &&
         has(many, "after 3 of at most 3 iterations of conjugate gradients")));
  CHECK(has(text([](const Tensor& x) { return x + 1.0; }), "A is linear, but |A(0)| is 2.2"));
  CHECK(has(text([&](const Tensor& x) { return -d * x; }), "need a positive definite A"));
  CHECK(has(text([](const Tensor& x) { return x; }, {.preconditioner = [](const Tensor& r) { return -r; }}),
            "preconditioner is not positive"));
  const auto skew = global_tensor({5, 5}, 3);
  const auto rotated =
      text([&](const Tensor& x) { return 2.0 * x + 0.02 * product(skew - transpose(skew), x); }, {.tolerance = 1e-2});
  CHECK(has(rotated, "need a symmetric A"));
  CHECK(has(text([](const Tensor& x) { return cast(x, DType::float32); }), "A(x) has the type and layout of x"));
  CHECK(has(text([](const Tensor& x) { return 0.0 * x; }, {.solver = Solver::bicgstab}), "no longer falls"));
  CHECK(has(text([](const Tensor& x) { return x; }, {.tolerance = 0}), "are positive"));
  CHECK(has(error_text([] { solve([](const Tensor& x) { return x; }, arange(3)); }), "b is float32 or float64"));
  check_on_ranks(2, "plain", [&](const Communicator& comm) {
    const auto message = text([&](const Tensor& x) { return x + allreduce(x, comm); });
    require(has(message, "options.communicator says"), "[test] {}", message);
  });
}

TEST_CASE("fixed_point: derivatives of two orders, on ranks, reports, misuse") {
  for (const int size : {1, 2})
    check_on_ranks(size, "fixed_point", [](const Communicator& comm) {
      const auto f = [&](const Tensors& in) {
        const auto p = in[0], w = in[1];
        const auto g = [p, w, &comm](const Tensor& u) {
          return tanh(0.1 * w * u + 0.1 * allreduce(u, comm) / static_cast<double>(comm.size()) + p);
        };
        return Tensors{fixed_point(g, zeros_like(p), {.tolerance = 1e-15, .adjoint_tolerance = 1e-14, .communicator = comm})};
      };
      const auto seed = static_cast<std::uint64_t>(comm.rank());
      const Tensors x{global_tensor({4}, 7 + seed), global_tensor({4}, 77 + seed)};
      require_adjoint("fixed_point", f, x, comm, {.tolerance = 1e-9, .difference_tolerance = 1e-6});
      if (comm.size() == 1) require_taylor("fixed_point", f, x, comm);
    });
  // Newton's iteration for a root of u^2 = p: du/dp = 1 / (2 u).
  const auto p = from_vector({2}, {2, 9}, DType::float64);
  const auto reports = std::make_shared<SolveReports>();
  Tape tape;
  const auto u =
      fixed_point([p](const Tensor& at) { return 0.5 * (at + p / at); }, ones({2}, DType::float64), {.reports = reports});
  CHECK(tape.entries().size() == 1);
  require_close("root", u, sqrt(p), 1e-15);
  require_close("its derivative", tape.gradient(sum(u), {p})[0], 0.5 / sqrt(p), 1e-12);
  CHECK((reports->forward.iterations <= 8 && reports->adjoint.iterations <= 2 && reports->forward.residual <= 1e-10));
  const auto message = error_text([&] { fixed_point([](const Tensor& at) { return 2.0 * at + 1.0; }, p, {.iterations = 9}); });
  CHECK((has(message, "[fixed_point] no convergence: ") && has(message, "after 9 of at most 9 iterations")));
  CHECK(has(error_text([&] { fixed_point([](const Tensor& at) { return sum(at); }, p); }), "g(u) has the type and layout of u"));
}
