// Poisson's equation: the inverse of the discrete Laplacian for every order and boundary, exact solutions, adjoints, bits that do
// not depend on the number of ranks, and its use as a preconditioner.

#include <cmath>
#include <numbers>
#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/check/taylor_test.h"
#include "comm/distributed/distributed.h"
#include "models/simulation/fields.h"
#include "models/simulation/implicit.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using fields::Boundary;
using fields::DifferenceOptions;

namespace {

constexpr auto periodic = Boundary::periodic, dirichlet = Boundary::dirichlet, neumann = Boundary::neumann;
const std::vector<std::array<Boundary, 3>> all_boundaries{{periodic, periodic, periodic}, {dirichlet, dirichlet, dirichlet},
                                                          {neumann, neumann, neumann},    {periodic, neumann, dirichlet},
                                                          {neumann, periodic, neumann},   {dirichlet, periodic, periodic}};

Tensor without_mean(const Tensor& x) { return x - mean(x, {1, 2, 3}, true); }

}  // namespace

TEST_CASE("poisson: undoes the Laplacian of every order, for odd, prime and unit extents") {
  for (const auto& shape : std::vector<Shape>{{2, 4, 5, 7, 2}, {1, 1, 6, 9, 1}, {1, 8, 1, 1, 2}, {1, 2, 2, 3, 1}})
    for (const auto& boundary : all_boundaries)
      for (const int order : {2, 4, 6, 8, fields::spectral}) {
        const bool narrow = std::any_of(shape.begin() + 1, shape.begin() + 4, [&](auto n) { return n > 1 && n < order / 2; });
        if (narrow) continue;
        const DifferenceOptions options{.spacing = {0.5, 0.9, 1.3}, .order = order, .boundary = boundary};
        bool singular = true;
        for (std::size_t d = 0; d < 3; ++d)
          singular = singular && (boundary[d] != dirichlet || shape[static_cast<int>(d) + 1] == 1);
        const auto b = global_tensor(shape, 1), u = fields::poisson(b, options);
        require_close("the right side", fields::laplacian(u, options), singular ? without_mean(b) : b, 1e-11);
        const auto back = fields::poisson(fields::laplacian(b, options), options);
        require_close("the solution", back, singular ? without_mean(b) : b, 1e-11);
        if (singular) require_close("its mean", mean(u, {1, 2, 3}), zeros_like(mean(u, {1, 2, 3})), 1e-13);
      }
  const auto b = global_tensor({2, 1, 1, 1, 3}, 1);
  require_close("one point", fields::poisson(b), zeros_like(b), 0);
}

TEST_CASE("poisson: exact solutions of differential equations") {
  // u = f(x) g(y), along H between walls and along W in a box, f = sin or cos of 2 pi x, g = cos(4 pi y + 0.3)
  for (const auto wall : {dirichlet, neumann})
    for (const int order : {2, 4, fields::spectral}) {
      const auto error = [&](std::int64_t n) {
        const double h = 1.0 / static_cast<double>(n), a = 2 * std::numbers::pi, c = 4 * std::numbers::pi;
        const auto at = h * (arange(n, DType::float64) + 0.5);
        const auto x = reshape(a * at, {1, 1, n, 1, 1}), y = reshape(c * at + 0.3, {1, 1, 1, n, 1});
        const auto u = (wall == dirichlet ? sin(x) : cos(x)) * cos(y);
        return largest_difference(
            fields::poisson(-(a * a + c * c) * u, {.spacing = {1, h, h}, .order = order, .boundary = {periodic, wall, periodic}}),
            u);
      };
      const double coarse = error(16), fine = error(32);
      if (order == fields::spectral) CHECK(coarse < 1e-13);
      else CHECK(std::log2(coarse / fine) == doctest::Approx(order).epsilon(0.05));
    }
  // A parabola, which no wave between the walls continues smoothly: second order.
  const auto error = [](std::int64_t n) {
    const double h = 1.0 / static_cast<double>(n);
    const auto x = reshape(h * (arange(n, DType::float64) + 0.5), {1, n, 1, 1, 1});
    const auto u = fields::poisson(2.0 * ones_like(x), {.spacing = {h, 1, 1}, .boundary = {dirichlet, periodic, periodic}});
    return largest_difference(u, x * (x - 1));
  };
  CHECK(std::log2(error(20) / error(40)) == doctest::Approx(2).epsilon(0.01));
}

TEST_CASE("poisson on ranks: one rank's bits of values and gradients, adjoints and Taylor tests") {
  const Shape shape{2, 7, 5, 6, 1};
  for (std::size_t i = 0; i < all_boundaries.size(); ++i) {
    const DifferenceOptions options{
        .spacing = {0.5, 0.9, 1.3}, .order = i % 2 == 0 ? 2 : fields::spectral, .boundary = all_boundaries[i]};
    const auto run = [&](const Tensor& b) {
      Tape tape;
      const auto u = fields::poisson(b, options);
      return Tensors{u, tape.gradient(sum(square(u) * b), {b})[0]};
    };
    const auto whole = run(global_tensor(shape, 1));
    for (const auto& extents :
         std::vector<GridExtents>{{}, {.depth = 2}, {.width = 3}, {.depth = 2, .height = 2}, {.sample = 2, .depth = 3}})
      check_on_ranks(ranks_of(extents), "poisson", [&](const Communicator& comm) {
        Dice dice(static_cast<std::uint64_t>(comm.size()) + i);
        const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
        const auto b = global_tensor(shape, 1, layout);
        const auto split = run(b);
        for (std::size_t j = 0; j < 2; ++j) {
          require(j > 0 || *split[j].layout() == *layout, "[test] layout {}", to_string(*split[j].layout()));
          require(largest_difference(split[j].without_layout(), part_of(whole[j], layout).without_layout()) == 0,
                  "[test] boundary {}, result {}: other bits than one rank", i, j);
        }
        if (comm.size() > 4) return;
        require_adjoint("poisson", [&](const Tensors& in) { return Tensors{fields::poisson(in[0], options)}; }, {b}, comm,
                        {.linear = true});
        if (i == 3)
          require_taylor(
              "poisson", [&](const Tensors& in) { return Tensors{square(fields::poisson(sin(in[0]), options))}; }, {b}, comm);
      });
  }
}

TEST_CASE("poisson: preconditions conjugate gradients for a coefficient that varies, on ranks with equal bits") {
  const Shape shape{1, 15, 14, 20, 1};
  for (const auto& boundary : {all_boundaries[0], all_boundaries[3]}) {
    const DifferenceOptions options{.spacing = {0.1, 0.1, 0.1}, .boundary = boundary};
    auto even = options;  // k has no odd continuation
    for (auto& each : even.boundary)
      if (each == dirichlet) each = neumann;
    const auto solution = [&](const LayoutPtr& layout, bool preconditioned, SolveReport* report) {
      const auto k = exp(0.7 * global_tensor(shape, 1, layout));
      const auto b = fields::laplacian(global_tensor(shape, 2, layout), options);  // without a mean where A is singular
      // -div(k grad u), with the mean of two points' k between them
      const auto A = [=](const Tensor& u) {
        return 0.5 * (u * fields::laplacian(k, even) - fields::laplacian(k * u, options) - k * fields::laplacian(u, options));
      };
      SolveOptions how{.tolerance = 1e-10, .reports = std::make_shared<SolveReports>()};
      if (preconditioned) how.preconditioner = [=](const Tensor& r) { return -fields::poisson(r, options); };
      Tape tape;
      const auto u = solve(A, b, how);
      const auto gradient = tape.gradient(sum(square(u)), {k})[0];
      *report = how.reports->forward;
      return Tensors{u, gradient};
    };
    SolveReport bare, with;
    const auto slow = solution({}, false, &bare), fast = solution({}, true, &with);
    CHECK(with.iterations * 3 < bare.iterations);
    const auto scale = [](const Tensor& x) { return max(abs(x)).item(); };
    CHECK(largest_difference(without_mean(slow[0]), without_mean(fast[0])) < 1e-7 * scale(fast[0]));
    CHECK(largest_difference(slow[1], fast[1]) < 1e-6 * scale(fast[1]));
    for (const int ranks : {2, 3})
      check_on_ranks(ranks, "preconditioned", [&](const Communicator& comm) {
        const auto layout = activation_layout(make_grid(comm, {.depth = ranks}), shape);
        SolveReport report;
        const auto split = solution(layout, true, &report);
        require(largest_difference(split[0].without_layout(), part_of(fast[0], layout).without_layout()) == 0,
                "[test] other bits than one rank");
        require(report.iterations == with.iterations, "[test] {} iterations, not {}", report.iterations, with.iterations);
      });
  }
}

TEST_CASE("poisson: misuse is refused by name") {
  const auto b = ones({1, 3, 3, 3, 1}, DType::float64);
  const auto text = [](const Tensor& x, const DifferenceOptions& options) {
    return error_text([&] { fields::poisson(x, options); });
  };
  CHECK(has(text(ones({3, 3}), {}), "[fields::poisson] takes [N, D, H, W, C]"));
  CHECK(has(text(b, {.spacing = {1, 0, 1}}), "[fields::poisson] the spacing is positive: 0"));
  CHECK(has(text(b, {.order = 5}), "orders 2, 4, 6 and 8"));
  CHECK(has(text(cast(b, DType::bfloat16), {}), "[fields::poisson] float32 or float64 is needed"));
  CHECK(has(text(cast(b, DType::complex128), {}), "[fields::poisson] takes floating-point tensors"));
  CHECK(has(text(zeros({1, 0, 3, 3, 1}, DType::float64), {}), "[fields::poisson] dimension 1 has no elements"));
  check_on_ranks(8, "three axes", [](const Communicator& comm) {
    const Shape shape{1, 4, 4, 4, 1};
    const auto x = global_tensor(shape, 1, activation_layout(make_grid(comm, {.depth = 2, .height = 2, .width = 2}), shape));
    const auto why = error_text([&] { fields::poisson(x); });
    require(has(why, "[fields::poisson] dimension 3 is split over grid axis width") && has(why, "pencils"), "[test] {}", why);
  });
}
