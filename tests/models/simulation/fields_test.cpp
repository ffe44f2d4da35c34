// Finite differences on periodic boxes: weights, orders, adjoints, and bits that do not depend on the number of ranks.

#include "models/simulation/fields.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/distributed/distributed.h"
#include "comm/halos/periodic.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("fields: weights of central differences") {
  CHECK(fields::difference_weights(1, 2) == std::vector<double>{-0.5, 0, 0.5});
  CHECK(fields::difference_weights(2, 2) == std::vector<double>{1, -2, 1});
  const auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < b.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-14));
  };
  close(fields::difference_weights(1, 4), {1 / 12.0, -2 / 3.0, 0, 2 / 3.0, -1 / 12.0});
  close(fields::difference_weights(2, 8),
        {-1 / 560.0, 8 / 315.0, -1 / 5.0, 8 / 5.0, -205 / 72.0, 8 / 5.0, -1 / 5.0, 8 / 315.0, -1 / 560.0});
  close(fields::difference_weights(1, 6), {-1 / 60.0, 3 / 20.0, -3 / 4.0, 0, 3 / 4.0, -3 / 20.0, 1 / 60.0});
}

TEST_CASE("fields: errors fall with the order that is asked for") {
  // sin(2 pi x) along each dimension, with two numbers of points.
  for (int dimension = 1; dimension <= 3; ++dimension)
    for (const int order : {2, 4, 6, 8}) {
      const auto errors = [&](std::int64_t n) {
        Shape shape{1, 4, 4, 4, 1};
        shape[dimension] = n;
        Shape along{1, 1, 1, 1, 1};
        along[dimension] = n;
        const double k = 2 * std::numbers::pi, h = 1.0 / static_cast<double>(n);
        const auto phase = broadcast_to(reshape(k * h * arange(n, DType::float64), along), shape);
        fields::DifferenceOptions options{.order = order};
        options.spacing[static_cast<std::size_t>(dimension - 1)] = h;
        const auto first = slice(fields::gradient(sin(phase), options), 4, dimension - 1, dimension);
        return std::vector<double>{largest_difference(first / k, cos(phase)),
                                   largest_difference(fields::laplacian(sin(phase), options) / (k * k), -sin(phase))};
      };
      const auto coarse = errors(16), fine = errors(32);
      for (std::size_t i = 0; i < 2; ++i) CHECK(std::log2(coarse[i] / fine[i]) == doctest::Approx(order).epsilon(0.05));
    }
}

TEST_CASE("fields: equal to a periodic convolution, and two dimensions are D = 1") {
  const auto x = global_tensor({2, 1, 5, 6, 2}, 1);
  const fields::DifferenceOptions options{.spacing = {1, 0.5, 2}, .order = 4};
  const auto g = fields::gradient(x, options);
  CHECK(g.shape() == Shape{2, 1, 5, 6, 6});
  require_close("along D", slice(g, 4, 0, 2), zeros_like(x), 0);
  const auto w = fields::difference_weights(1, 4);
  Tensor along;
  for (int j = -2; j <= 2; ++j) {
    const auto term = w[static_cast<std::size_t>(j + 2)] / 0.5 * roll(x, -j, 2);
    along = along ? along + term : term;
  }
  require_close("along H", slice(g, 4, 2, 4), along, 1e-14);
  const auto wide = fields::divergence(g, options), narrow = fields::laplacian(x, options);
  CHECK((wide.shape() == x.shape() && narrow.shape() == x.shape()));
  const auto v = global_tensor(g.shape(), 2);
  CHECK(std::abs(dot(g, v).item() + dot(x, fields::divergence(v, options)).item()) < 1e-11);
  CHECK(std::abs(sum(narrow).item()) < 1e-11);
  CHECK(std::abs(sum(wide).item()) < 1e-11);
}

TEST_CASE("fields: adjoints on ranks; values and gradients have the bits of one rank") {
  const Shape shape{2, 9, 5, 4, 2}, vector{2, 9, 5, 4, 6};
  const auto run = [&](const LayoutPtr& of_x, const LayoutPtr& of_v, int order) {
    const auto x = global_tensor(shape, 1, of_x), v = global_tensor(vector, 2, of_v);
    const fields::DifferenceOptions options{.spacing = {0.3, 0.7, 1.1}, .order = order};
    Tape tape;
    const auto g = fields::gradient(x, options), d = fields::divergence(v, options), l = fields::laplacian(x, options);
    auto all = tape.gradient(sum(sin(g) * v) + sum(square(d) * l), {x, v});
    for (const auto& each : {d, l, g}) all.push_back(each);
    return all;
  };
  for (const int order : {2, 8}) {
    const auto whole = run({}, {}, order);
    for (const auto& extents :
         std::vector<GridExtents>{{}, {.depth = 2}, {.depth = 3}, {.height = 2, .width = 2}, {.sample = 2, .depth = 4}})
      check_on_ranks(ranks_of(extents), "fields", [&](const Communicator& comm) {
        Dice dice(static_cast<std::uint64_t>(comm.size()));
        const auto grid = make_grid(comm, extents);
        const auto of_x = with_random_cuts(activation_layout(grid, shape), dice);
        auto of_v = std::make_shared<Layout>(*of_x);
        of_v->global = vector;
        const auto split = run(of_x, of_v, order);
        for (std::size_t i = 0; i < split.size(); ++i) {
          const auto layout = split[i].layout();
          require(layout != nullptr, "[test] result {} has no layout", i);
          const double off = largest_difference(split[i].without_layout(), part_of(whole[i], layout).without_layout());
          require(off == 0, "[test] order {}: result {} is off by {}", order, i, off);
        }
        if (order == 8 || comm.size() > 4) return;
        const auto x = global_tensor(shape, 3, of_x), v = global_tensor(vector, 4, of_v);
        require_adjoint("gradient", [](const Tensors& in) { return Tensors{fields::gradient(in[0], {.order = 4})}; }, {x}, comm,
                        {.linear = true});
        require_adjoint("divergence", [](const Tensors& in) { return Tensors{fields::divergence(in[0])}; }, {v}, comm,
                        {.linear = true});
        require_adjoint("laplacian", [](const Tensors& in) { return Tensors{fields::laplacian(in[0], {.order = 6})}; }, {x}, comm,
                        {.linear = true});
      });
  }
}

TEST_CASE("fields: misuse is refused by name") {
  const auto x = ones({1, 3, 3, 3, 2});
  CHECK(has(error_text([&] { fields::gradient(x, {.order = 3}); }), "orders 2, 4, 6 and 8: derivative 1, order 3"));
  CHECK(has(error_text([&] { fields::laplacian(x, {.order = 8}); }), "[fields::stencil] 4 planes on either side of 3"));
  CHECK(has(error_text([&] { fields::laplacian(x, {.spacing = {1, 0, 1}}); }), "the spacing is positive: 0"));
  CHECK(has(error_text([&] { fields::gradient(ones({3, 3})); }), "[fields::gradient] takes [N, D, H, W, C]"));
  CHECK(has(error_text([&] { fields::divergence(x); }), "[fields::divergence] takes 3 C channels"));
  CHECK(has(error_text([&] { fields::stencil(x, {1, 2}, 1); }), "odd number of weights"));
  CHECK(has(error_text([&] { fields::stencil(arange(4), {1, 2, 1}, 0); }), "floating-point"));
}
