// Random integers, permutations, categories and Bernoulli draws: their numbers, which do not depend on the layout.

#include "ops/random/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/elementwise/elementwise.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("random integers: in range, of any integer type, from the uniform numbers") {
  const Philox random{.key = 3, .stream = 4};
  const auto values = random_integers({100}, random, -3, 5).to_vector();
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(values[i] == std::floor(8 * random.uniform(i)) - 3);
  for (const double wanted : {-3, 4}) CHECK(std::count(values.begin(), values.end(), wanted) > 0);
  CHECK(random_integers({100}, random, -3, 5, DType::int16).to_vector() == values);
  CHECK(random_integers({4}, random, 254, 256, DType::uint8).dtype() == DType::uint8);
  CHECK(error_text([&] { random_integers({4}, random, 0, 257, DType::uint8); }).starts_with("[random_integers] uint8 does not"));
  CHECK(error_text([&] { random_integers({4}, random, 2, 2); }).starts_with("[random_integers] numbers from 2"));
  CHECK(error_text([&] { random_integers({4}, random, 0, 2, DType::float32); }).starts_with("[random_integers] an integer type"));
}

TEST_CASE("permutation: every number once, another order for another stream") {
  std::vector<double> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  const auto first = permutation(50, {.key = 1}).to_vector(), second = permutation(50, {.key = 1, .stream = 1}).to_vector();
  CHECK(first != expected);
  CHECK(first != second);
  CHECK(std::is_permutation(first.begin(), first.end(), expected.begin()));
  CHECK(permutation(50, {.key = 1}).to_vector() == first);
  CHECK(permutation(0, {}).shape() == Shape{0});
}

TEST_CASE("categorical and bernoulli: frequencies, and what is impossible or certain") {
  const std::int64_t n = 20000;
  const auto logits = log(from_vector({4}, {0.5, 0, 0.2, 0.3}, DType::float64));
  const auto classes = categorical(zeros({n, 4}, DType::float64) + logits, {.key = 2}).to_vector();
  const double expected[] = {0.5, 0, 0.2, 0.3};
  for (int c = 0; c < 4; ++c) {
    const auto count = static_cast<double>(std::count(classes.begin(), classes.end(), c));
    // At most four standard deviations.
    CHECK(std::abs(count / n - expected[c]) <= 4 * std::sqrt(expected[c] * (1 - expected[c]) / n));
  }
  const auto draws = bernoulli(from_vector({4}, {0, 1, 0.5, 0.5}), {.key = 2});
  CHECK(draws.dtype() == DType::float32);
  CHECK(draws.to_vector()[0] == 0);
  CHECK(draws.to_vector()[1] == 1);
  const auto ones_of = bernoulli(full({n}, 0.3), {.key = 5}).to_vector();
  CHECK(std::abs(std::accumulate(ones_of.begin(), ones_of.end(), 0.0) / n - 0.3) <= 4 * std::sqrt(0.21 / n));
}

TEST_CASE("random: draws of split tensors are those of one rank") {
  for (const int size : {2, 3, 4})
    check_on_ranks(size, "random", [](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      for (int i = 0; i < 4; ++i) {
        const auto layout = random_layout(comm, dice, {3, 4, 5, 6, 3});
        const auto compare = [&](const char* name, const auto& draw) {
          const auto mine = draw(layout);
          require_close(name, mine, part_of(draw(LayoutPtr()), mine.layout()), 0);
        };
        const auto& shape = layout->global;
        compare("random_integers",
                [&](const LayoutPtr& on) { return random_integers(shape, {.key = 5}, 0, 1000, DType::int32, on); });
        compare("categorical", [&](const LayoutPtr& on) { return categorical(global_tensor(shape, 6, on), {.key = 7}); });
        compare("bernoulli", [&](const LayoutPtr& on) { return bernoulli(abs(global_tensor(shape, 6, on)), {.key = 7}); });
      }
    });
}
