// Differences between walls and spectral derivatives: continuations, orders, adjoints, and bits that do not depend on the number
// of ranks.

#include <cmath>
#include <numbers>
#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/collectives/collectives.h"
#include "comm/distributed/distributed.h"
#include "models/simulation/fields.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using fields::Boundary;

namespace {

constexpr auto periodic = Boundary::periodic, dirichlet = Boundary::dirichlet, neumann = Boundary::neumann;

// The field between walls along D, continued to twice the extent, where it is periodic.
Tensor continued(const Tensor& x, Boundary boundary) {
  const auto mirrored = flip(x, {1});
  return concatenate({x, boundary == dirichlet ? -mirrored : mirrored}, 1);
}

}  // namespace

TEST_CASE("walls: differences are those of the periodic continuation") {
  const std::int64_t n = 5;
  const auto x = global_tensor({2, n, 3, 1, 2}, 1), v = global_tensor({2, n, 3, 1, 6}, 2);
  for (const int order : {2, 4, 6, 8, fields::spectral})
    for (const auto wall : {dirichlet, neumann}) {
      const auto of_flux = wall == dirichlet ? neumann : dirichlet;
      const fields::DifferenceOptions plain{.spacing = {0.3, 1, 1}, .order = order == 0 ? 0 : 2};
      auto box = plain, walls = plain;
      box.order = walls.order = order, walls.boundary = {wall, periodic, periodic};
      const auto first = [&](const Tensor& y) { return slice(y, 1, 0, n); };
      const auto twice = [&](const Tensor& y) { return concatenate({y, y, y, y}, 2); };  // order 8 needs 4 points along H
      require_close("gradient", fields::gradient(twice(x), walls), first(fields::gradient(twice(continued(x, wall)), box)),
                    1e-12);
      require_close("laplacian", fields::laplacian(twice(x), walls), first(fields::laplacian(twice(continued(x, wall)), box)),
                    1e-11);
      // Along H nothing changes, so the continuation of the other channels does not matter.
      require_close("divergence", fields::divergence(twice(v), walls),
                    first(fields::divergence(twice(continued(v, of_flux)), box)), 1e-12);
    }
}

TEST_CASE("walls: errors fall with the order, and spectral derivatives are exact") {
  for (const auto wall : {dirichlet, neumann})
    for (const int order : {2, 4, 6, 8, fields::spectral}) {
      const auto errors = [&](std::int64_t n) {
        const double h = 1.0 / static_cast<double>(n), k = 3 * std::numbers::pi;
        const auto phase = reshape(k * h * (arange(n, DType::float64) + 0.5), {1, 1, n, 1, 1});
        const auto x = wall == dirichlet ? sin(phase) : cos(phase), slope = wall == dirichlet ? cos(phase) : -sin(phase);
        const fields::DifferenceOptions options{.spacing = {1, h, 1}, .order = order, .boundary = {periodic, wall, periodic}};
        return std::vector<double>{largest_difference(slice(fields::gradient(x, options), 4, 1, 2) / k, slope),
                                   largest_difference(fields::laplacian(x, options) / (k * k), -x)};
      };
      const auto coarse = errors(24), fine = errors(48);
      for (std::size_t i = 0; i < 2; ++i)
        if (order == fields::spectral) CHECK(coarse[i] < 1e-13);
        else CHECK(std::log2(coarse[i] / fine[i]) == doctest::Approx(order).epsilon(0.06));
    }
}

TEST_CASE("walls: adjoints on ranks; values and gradients have the bits of one rank") {
  const Shape shape{1, 9, 5, 4, 1}, vector{1, 9, 5, 4, 3};
  const std::vector<std::array<Boundary, 3>> boundaries{{dirichlet, neumann, periodic}, {neumann, periodic, dirichlet}};
  const auto run = [&](const LayoutPtr& of_x, const LayoutPtr& of_v, const fields::DifferenceOptions& options) {
    const auto x = global_tensor(shape, 1, of_x), v = global_tensor(vector, 2, of_v);
    Tape tape;
    const auto g = fields::gradient(x, options), d = fields::divergence(v, options), l = fields::laplacian(x, options);
    auto all = tape.gradient(sum(sin(g) * v) + sum(square(d) * l), {x, v});
    for (const auto& each : {d, l, g}) all.push_back(each);
    return all;
  };
  for (const int order : {2, 8, fields::spectral})
    for (const auto& boundary : boundaries) {
      const fields::DifferenceOptions options{.spacing = {0.3, 0.7, 1.1}, .order = order, .boundary = boundary};
      const auto whole = run({}, {}, options);
      for (const auto& extents :
           std::vector<GridExtents>{{}, {.depth = 2}, {.depth = 3}, {.height = 2, .width = 2}, {.depth = 5}})
        check_on_ranks(ranks_of(extents), "walls", [&](const Communicator& comm) {
          Dice dice(static_cast<std::uint64_t>(comm.size() + order));
          const auto of_x = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
          auto of_v = std::make_shared<Layout>(*of_x);
          of_v->global = vector;
          const auto split = run(of_x, of_v, options);
          for (std::size_t i = 0; i < split.size(); ++i) {
            const double off =
                largest_difference(split[i].without_layout(), part_of(whole[i], split[i].layout()).without_layout());
            require(off == 0, "[test] order {}: result {} is off by {}", order, i, off);
          }
          if (order == 8 || comm.size() > 3) return;
          const auto x = global_tensor(shape, 3, of_x), v = global_tensor(vector, 4, of_v);
          const auto check = [&](const char* name, auto f, const Tensor& at) {
            require_adjoint(name, [&](const Tensors& in) { return Tensors{f(in[0], options)}; }, {at}, comm, {.linear = true});
          };
          check("gradient", fields::gradient, x), check("divergence", fields::divergence, v);
          check("laplacian", fields::laplacian, x);
          const auto minus = -fields::gradient(x, options);
          const double forward = total(sum(minus * v)), back = total(sum(x * fields::divergence(v, options)));
          require(std::abs(forward - back) < 1e-11, "[test] the divergence is not the transpose: {} and {}", forward, back);
        });
    }
}

TEST_CASE("walls: misuse is refused by name") {
  const auto x = ones({1, 3, 3, 3, 1}, DType::float64);
  CHECK(has(error_text([&] { fields::stencil(x, {1, 2, 3}, 1, neumann); }), "weights are symmetric or antisymmetric: 1, 2, 3"));
  CHECK(has(error_text([&] { fields::laplacian(x, {.spacing = {1, INFINITY, 1}}); }), "the spacing is positive: inf"));
  CHECK(has(error_text([&] { fields::laplacian(arange(8), {.order = fields::spectral}); }), "[fields::laplacian] takes"));
  check_on_ranks(2, "split channels", [](const Communicator& comm) {
    const Shape shape{1, 3, 3, 3, 6};
    const auto y = global_tensor(shape, 1, activation_layout(make_grid(comm, {.channel = 2}), shape));
    for (const auto& f : {fields::gradient, fields::divergence}) {
      const auto why = error_text([&] { f(y, {}); });
      require(has(why, "[fields::") && has(why, "channels are split"), "[test] {}", why);
    }
  });
}
