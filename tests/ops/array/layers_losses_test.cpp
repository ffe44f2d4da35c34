// Composed layers and losses: values against plain formulas; losses and embeddings of split batches against one rank.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "comm/halos/periodic.h"
#include "models/train/training.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor doubles(const Shape& shape, const std::vector<double>& values) { return from_vector(shape, values, DType::float64); }

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("row norms: their formulas, and 16 bits rounded once") {
  const auto x = doubles({2, 3}, {1, 2, 6, -1, 0, 4}), gamma = doubles({3}, {1, 2, 0.5}), beta = doubles({3}, {0, 1, -1});
  std::vector<double> centred, scaled;
  const auto values = x.to_vector(), g = gamma.to_vector(), b = beta.to_vector();
  for (std::size_t i = 0; i < 6; ++i) {
    const auto* row = &values[i / 3 * 3];
    const double mean = (row[0] + row[1] + row[2]) / 3;
    double variance = 0, squares = 0;
    for (int c = 0; c < 3; ++c) variance += (row[c] - mean) * (row[c] - mean) / 3, squares += row[c] * row[c] / 3;
    centred.push_back((values[i] - mean) / std::sqrt(variance + 0.1) * g[i % 3] + b[i % 3]);
    scaled.push_back(values[i] / std::sqrt(squares + 0.1) * g[i % 3]);
  }
  require_close("layer_norm", layer_norm(x, gamma, beta, 0.1), doubles({2, 3}, centred));
  require_close("rms_norm", rms_norm(x, gamma, 0.1), doubles({2, 3}, scaled));
  const auto half = layer_norm(cast(x, DType::bfloat16), cast(gamma, DType::float32), cast(beta, DType::float32), 0.1);
  CHECK(half.dtype() == DType::bfloat16);
  require_close("bfloat16", half, cast(layer_norm(x, gamma, beta, 0.1), DType::bfloat16), 0x1p-8);
  CHECK(error_text([&] { layer_norm(x, doubles({2}, {1, 1})); }).starts_with("[layer_norm] 3 channels, but a parameter"));
}

TEST_CASE("embedding: rows by index, cotangents of one row add up; an index outside is refused") {
  const auto table = doubles({3, 2}, {1, 2, 3, 4, 5, 6}).as_variable();
  const auto indices = from_vector({2, 2}, {2, 0, 2, 2}, DType::int32);
  Tape tape;
  const auto y = embedding(indices, table);
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(y.to_vector() == std::vector<double>{5, 6, 1, 2, 5, 6, 5, 6});
  CHECK(tape.gradient(sum(y), {table})[0].to_vector() == std::vector<double>{1, 1, 0, 0, 3, 3});
  CHECK(error_text([&] { embedding(from_vector({1}, {3}, DType::int64), table); }).starts_with("[take] index 3 is outside"));
  CHECK(error_text([&] { embedding(ones({1}), table); }).starts_with("[embedding] needs integers"));
}

TEST_CASE("adaptive pooling: PyTorch's windows") {
  const auto x = doubles({1, 1, 1, 5, 1}, {3, 1, 4, 1, 5});
  const auto same = [](const Tensor& y, const std::vector<double>& expected) {
    require_close("adaptive pooling", reshape(y, {-1}), doubles({static_cast<std::int64_t>(expected.size())}, expected));
  };
  // [0, 2), [1, 4), [3, 5)
  same(adaptive_avg_pool(x, {1, 1, 3}), {2, 2, 3});
  same(adaptive_max_pool(x, {1, 1, 3}), {3, 4, 5});
  same(adaptive_max_pool(x, {1, 1, 1}), {5});
  // [0, 1), [0, 2), [1, 3), [2, 3), [2, 4), [3, 5), [4, 5)
  same(adaptive_avg_pool(x, {1, 1, 7}), {3, 2, 2.5, 4, 2.5, 3, 5});
  same(adaptive_max_pool(x, {1, 1, 7}), {3, 3, 4, 4, 4, 5, 5});
  // The first of equal elements gets the cotangent, also where a shorter window repeats its last element.
  const auto equal = doubles({1, 1, 1, 3, 1}, {1, 1, 1}).as_variable();
  Tape tape;
  CHECK(tape.gradient(sum(adaptive_max_pool(equal, {1, 1, 2})), {equal})[0].to_vector() == std::vector<double>{1, 1, 0});
}

TEST_CASE("conv1d: the products of a window") {
  const auto x = doubles({1, 4, 1}, {1, 2, 3, 4}), w = doubles({1, 2, 1}, {1, 10});
  CHECK(conv1d(x, w, doubles({1}, {0.5})).to_vector() == std::vector<double>{21.5, 32.5, 43.5});
  CHECK(conv1d(x, w, {.dilation = 2, .padding = Padding1d::sides(1, 0)}).to_vector() == std::vector<double>{20, 31, 42});
  CHECK(error_text([&] { conv2d(x, w); }).starts_with("[conv2d] needs [N, H, W, C]"));
}

TEST_CASE("roll: y[i + shift] = x[i]") {
  const auto x = doubles({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(roll(x, 1, 1).to_vector() == std::vector<double>{3, 0, 1, 2, 7, 4, 5, 6});
  CHECK(roll(x, {-9, 3}, {-1, 0}).to_vector() == std::vector<double>{5, 6, 7, 4, 1, 2, 3, 0});
}

TEST_CASE("losses: Huber, Kullback-Leibler, cosine similarity") {
  const auto p = doubles({2, 2}, {0, 1, 3, -4}), t = doubles({2, 2}, {0.5, 1, 1, 0});
  CHECK(huber(p, t, {.delta = 2, .reduction = Reduction::none}).to_vector() == std::vector<double>{0.125, 0, 2, 6});
  CHECK(huber(p, t, {.delta = 2}).item() == 8.125 / 4);
  CHECK(error_text([&] { huber(p, t, {.delta = 0}); }).starts_with("[huber] delta is positive"));

  const double q[] = {0.25, 0.75, 0.5, 0.5}, target[] = {0.5, 0.5, 0, 1};
  double sum_of_terms = 0;
  for (std::size_t i = 0; i < 4; ++i)
    if (target[i] > 0) sum_of_terms += target[i] * (std::log(target[i]) - std::log(q[i]));
  const auto log_q = log(doubles({2, 2}, {q, q + 4})), of_target = doubles({2, 2}, {target, target + 4});
  CHECK(kl_divergence(log_q, of_target).item() == doctest::Approx(sum_of_terms / 2).epsilon(1e-14));
  CHECK(kl_divergence(log_q, of_target, {.reduction = Reduction::sum}).item() == doctest::Approx(sum_of_terms).epsilon(1e-14));
  const KlDivergenceOptions of_logs{.log_target = true, .reduction = Reduction::sum};
  CHECK(kl_divergence(log_q, log(of_target), of_logs).item() == doctest::Approx(sum_of_terms).epsilon(1e-14));
  // No derivative is 0 times infinity, which would be NaN.
  const auto certain = doubles({1, 2}, {0, -infinity}).as_variable();
  Tape tape;
  const auto g = tape.gradient(kl_divergence(certain, certain, of_logs), {certain})[0].to_vector();
  CHECK(std::all_of(g.begin(), g.end(), [](double value) { return std::isfinite(value); }));

  const auto a = doubles({2, 2}, {3, 4, 0, 0}), b = doubles({2}, {1, 0});
  require_close("cosine", cosine_similarity(a, b), doubles({2}, {0.6, 0}), 1e-15);

  const LossFunction loss{huber, {.delta = 2}};
  CHECK(loss(p, t).item() == 8.125 / 4);
}

TEST_CASE("losses and embeddings of a split batch are those of one rank") {
  for (const int size : {2, 3, 5})
    check_on_ranks(size, "losses", [](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      const auto grid = make_grid(comm, {.sample = comm.size()});
      const auto layout = with_random_cuts(split_layout(grid, {4, 3}, {0}), dice);
      const auto compare = [&](const char* name, const auto& loss) {
        const auto run = [&](const LayoutPtr& on) {
          const auto x = global_tensor({4, 3}, 1, on), t = constant(abs(global_tensor({4, 3}, 2, on)));
          Tape tape;
          const auto value = loss(x, t);
          return std::pair(on ? total(value) : value.item(), tape.gradient(value, {x})[0]);
        };
        const auto [expected, gradient] = run({});
        const auto [found, mine] = run(layout);
        require(std::abs(found - expected) < 1e-14, "[test] {}: {} instead of {}", name, found, expected);
        require_close(name, mine, part_of(gradient, layout), 1e-14);
      };
      compare("huber", [](const Tensor& x, const Tensor& t) { return huber(x, t, {.delta = 0.5}); });
      compare("kl_divergence", [](const Tensor& x, const Tensor& t) { return kl_divergence(x, t); });
      compare("cosine_similarity", [](const Tensor& x, const Tensor& t) { return mean(cosine_similarity(x, t)); });

      const auto table = global_tensor({5, 2}, 3);
      const auto run = [&](const LayoutPtr& on) {
        const auto indices = random_integers({4, 3}, {.key = 4}, 0, 5, DType::int64, on);
        Tape tape;
        const auto y = embedding(indices, table);
        const auto scale = constant(global_tensor({4, 3, 2}, 5, y.layout()));
        return std::pair(y, tape.gradient(sum(y * scale), {table})[0]);
      };
      const auto [y, gradient] = run({});
      const auto [mine, of_table] = run(layout);
      require_close("embedding", mine, part_of(y, mine.layout()), 0);
      require_close("gradient of the table", of_table, gradient, 1e-14);
    });
}

TEST_CASE("conv2d and conv1d on split tensors are those of one rank") {
  for (const int size : {2, 4})
    check_on_ranks(size, "conv2d", [](const Communicator& comm) {
      Dice dice(7);
      const auto grid = make_grid(comm, {.sample = comm.size() / 2, .height = 2});
      const auto compare = [&](const LayoutPtr& layout, const Shape& weight, const auto& f) {
        const auto run = [&](const LayoutPtr& on) {
          const auto x = global_tensor(layout->global, 1, on), w = global_tensor(weight, 2);
          Tape tape;
          const auto y = f(x, w);
          return std::pair(y, tape.gradient(sum(square(y)), {x, w}));
        };
        const auto [y, gradients] = run({});
        const auto [mine, of_mine] = run(layout);
        require_close("value", mine, part_of(y, mine.layout()), 1e-13);
        require_close("gradient of x", of_mine[0], part_of(gradients[0], layout), 1e-12);
        require_close("gradient of w", of_mine[1], gradients[1], 1e-12);
      };
      compare(with_random_cuts(split_layout(grid, {3, 7, 5, 2}, {0, -1, 1}), dice), {3, 3, 2, 2},
              [](const Tensor& x, const Tensor& w) {
                return conv2d(x, w, {.stride = {2, 1}, .padding = Padding2d::sides({1, 0}, 0)});
              });
      compare(with_random_cuts(split_layout(grid, {3, 7, 2}, {0, -1, 1}), dice), {3, 3, 2},
              [](const Tensor& x, const Tensor& w) { return conv1d(x, w, {.padding = Padding1d::sides(0, 2)}); });
    });
}

TEST_CASE("what needs a whole dimension names redistribute()") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto layout = split_layout(make_grid(comm, {.sample = 2}), {4, 3}, {1});
    const auto x = global_tensor(layout->global, 1, layout);
    const auto expect = [&](const std::string& start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start) && has(text, "redistribute"), "[test] '{}' instead of '{}'", text, start);
    };
    expect("[layer_norm] the last dimension is split", [&] { layer_norm(x); });
    expect("[max/min] over dimension 1, which is split", [&] { max(x, {1}); });
    expect("[argmax] over dimension 1, which is split", [&] { argmax(x, 1); });
    expect("[vector_norm] along dimension 1, which is split", [&] { vector_norm(x, {1}, infinity); });
  });
}
