// Host code of CUDA kernels, or shared with the CPU: index arithmetic, plans of reductions, update formulas.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "framework/optim/rules/rules.h"
#include "framework/tensor/strided.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/scalar.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduction_plan.h"

using namespace mpigrad;

TEST_CASE("strided: division by an invariant is exact up to 2^63") {
  std::mt19937_64 random(3);
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> divisors{1,
                                     2,
                                     3,
                                     5,
                                     7,
                                     10,
                                     64,
                                     641,
                                     65536,
                                     (std::int64_t{1} << 31) - 1,
                                     std::int64_t{1} << 31,
                                     (std::int64_t{1} << 31) + 1,
                                     (std::int64_t{1} << 62) - 1,
                                     std::int64_t{1} << 62,
                                     largest};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + static_cast<std::int64_t>(random() >> (1 + random() % 62)));
  for (const auto d : divisors) {
    const FastDivide divide(d);
    REQUIRE(divide.divisor() == d);
    std::vector<std::int64_t> numbers{0, 1, d - 1, d, largest, largest - 1};
    if (d < largest) numbers.push_back(d + 1);
    const auto multiple = largest / d * d;  // the hardest cases are around multiples
    numbers.push_back(multiple), numbers.push_back(multiple - 1);
    for (int i = 0; i < 200; ++i) numbers.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 62)));
    for (const auto n : numbers) REQUIRE(divide.quotient(n) == n / d);
  }
}

TEST_CASE("strided: collapsed and widened walks go to the same places") {
  std::mt19937_64 random(5);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  for (int round = 0; round < 300; ++round) {
    StridedArrays<2> walk;
    const int rank = pick(6);
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(1 + pick(5));
    const auto own = shape.strides();
    std::vector<std::int64_t> of_second(static_cast<std::size_t>(rank));
    for (int d = 0; d < rank; ++d) {  // contiguous, repeated, reversed or strided
      const auto stride = own[static_cast<std::size_t>(d)];
      const std::int64_t choices[] = {stride, stride, 0, -stride, 4 * stride};
      of_second[static_cast<std::size_t>(d)] = choices[pick(5)];
      walk.add(shape[d], {stride, of_second[static_cast<std::size_t>(d)]});
    }
    const auto small = walk.collapsed();
    REQUIRE(small.rank <= rank);
    REQUIRE(small.elements() == shape.elements());
    const auto width = small.widest(8);
    const auto wide = small.widened(width);
    REQUIRE(wide.elements() * width == shape.elements());
    const StridedWalk<2> plain(walk), merged(small), widened(wide);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      std::int64_t expected[2] = {0, 0}, a[2], b[2], c[2], rest = i;
      for (int d = rank - 1; d >= 0; --d) {
        expected[0] += rest % shape[d] * own[static_cast<std::size_t>(d)];
        expected[1] += rest % shape[d] * of_second[static_cast<std::size_t>(d)];
        rest /= shape[d];
      }
      plain.offsets(i, a);
      merged.offsets(i, b);
      widened.offsets(i / width, c);
      for (int k = 0; k < 2; ++k) {
        REQUIRE(a[k] == expected[k]);
        REQUIRE(b[k] == expected[k]);
        REQUIRE(c[k] * width + i % width == expected[k]);
      }
    }
  }
}

TEST_CASE("strided: what lies in one piece is one dimension, and is taken 16 bytes at a time") {
  StridedArrays<2> walk;
  for (const auto& [extent, stride] : {std::pair{4, 96}, std::pair{1, 7}, std::pair{8, 12}, std::pair{12, 1}})
    walk.add(extent, {stride, stride});
  const auto one = walk.collapsed();
  CHECK(one.rank == 1);
  CHECK(one.extents[0] == 384);
  CHECK(one.widest(16) == 16);
  StridedArrays<2> halo;  // a slab of width 3 of rows of 10
  halo.add(6, {10, 3});
  halo.add(3, {1, 1});
  CHECK(halo.collapsed().rank == 2);
  CHECK(halo.collapsed().widest(4) == 1);
  CHECK(StridedArrays<2>().collapsed().widest(16) == 1);
  CHECK(StridedArrays<2>().elements() == 1);
}

TEST_CASE("cuda reductions: plans cover every element once, whatever the shape") {
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  const std::vector<Case> cases{{{7}, {0}},
                                {{3, 5, 7}, {1}},
                                {{3, 5, 7}, {0, 2}},
                                {{3, 5, 7}, {0, 1, 2}},
                                {{3, 5, 7}, {2}},
                                {{2, 3, 4, 5, 6}, {0, 1, 2, 3}},
                                {{2, 3, 4, 5, 6}, {4}},
                                {{1, 6, 1, 4}, {0, 1}},
                                {{4, 0, 3}, {1}},
                                {{0, 3}, {1}},
                                {{}, {}},
                                {{40000}, {0}},
                                {{9000, 4}, {0}},
                                {{3, 9000}, {1}}};
  for (const auto& reduced : cases) {
    const auto& shape = reduced.shape;
    const auto& axes = reduced.axes;
    CAPTURE(shape);
    const auto r = cuda::reduction_of(shape, axes);
    UseDevice device(DeviceKind::cpu);
    std::vector<double> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 1.0);
    const auto expected = mpigrad::apply(ops::Sum{axes}, {from_vector(shape, values, DType::float64)}).to_vector();
    REQUIRE(r.outputs == static_cast<std::int64_t>(expected.size()));
    REQUIRE(r.chunks * r.chunk >= r.count);
    REQUIRE((r.chunks == 1 || (r.chunks - 1) * r.chunk < r.count));
    for (std::int64_t o = 0; o < r.outputs; ++o) {
      double total = 0;  // in the order of the kernels
      for (std::int64_t c = 0; c < r.chunks; ++c)
        for (std::int64_t i = c * r.chunk; i < std::min(r.count, (c + 1) * r.chunk); ++i)
          total += values[static_cast<std::size_t>(r.kept.offset(o) + r.reduced.offset(i))];
      REQUIRE(total == expected[static_cast<std::size_t>(o)]);
    }
    if (r.kept_is_contiguous && r.outputs > 1) CHECK(r.kept.offset(1) == 1);
  }
  CHECK(cuda::reduction_of({2, 64, 64, 64, 16}, {0, 1, 2, 3}).chunks > 100);
  CHECK(cuda::reduction_of({2, 64, 64, 64, 16}, {0, 1, 2, 3}).kept_is_contiguous);
  CHECK(cuda::reduction_of({std::int64_t{1} << 31}, {0}).chunks == 2048);
  CHECK(cuda::reduction_of({100000, 10}, {1}).chunks == 1);
}

TEST_CASE("update formulas: a step's numbers, by hand") {
  const RuleOfStep<AdamRule> adam{.rule = AdamRule::of({.beta2 = 0.99}), .scale = {0.5}, .correction1 = 0.1, .correction2 = 0.01};
  double p = 2, m = 0, v = 0;
  adam.numbers<double>(0.1, 0).update(p, 4.0, m, v);
  CHECK(m == doctest::Approx(0.2));
  CHECK(v == doctest::Approx(0.04));
  CHECK(p == doctest::Approx(2 - 0.1));  // the first step has the size of the learning rate
  CHECK(RuleOfStep<AdamWRule>{}.numbers<double>(0.1, 0.5).keep == doctest::Approx(0.95));
  const RuleOfStep<SGDRule> sgd{.rule = {.momentum = 0.5, .nesterov = true}, .scale = {2}};
  double q = 1, w = 3;
  sgd.numbers<double>(0.1, 1.0).update(q, 1.0, w);
  CHECK(w == doctest::Approx(0.5 * 3 + 3));  // d = 2 g + p = 3
  CHECK(q == doctest::Approx(1 - 0.1 * (3 + 0.5 * 4.5)));
}

TEST_CASE("scalar functions keep their rules at the edges") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(scalar::Maximum{}(1.0, std::nan(""))));
  CHECK(std::isnan(scalar::Minimum{}(std::nan(""), 1.0)));
  CHECK(scalar::Divide{}(7, 0) == 0);
  CHECK(scalar::Divide{}(std::numeric_limits<std::int32_t>::lowest(), -1) == std::numeric_limits<std::int32_t>::lowest());
  CHECK(scalar::LeakyRelu{0}(-infinity) == 0);
  CHECK_FALSE(std::signbit(scalar::LeakyRelu{0}(-1.0)));
  CHECK(scalar::LeakyReluAdjoint{0}(infinity, -1.0) == 0);
  CHECK(scalar::Sigmoid{}(-1000.0) == 0);
  CHECK(scalar::Softplus{}(1000.0) == 1000);
  CHECK(scalar::Sign{}(-0.5) == -1);
  CHECK(scalar::Clamp{-1, 1}(3.0F) == 1.0F);
}
