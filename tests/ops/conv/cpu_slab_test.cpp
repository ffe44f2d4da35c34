// Convolutions of thin slabs, such as a halo next to the block of a rank: most taps of the kernel meet only padding, and the slab
// is one or two planes thick in some direction.

#include <doctest/doctest.h>

#include "ops/conv/conv_reduced.h"
#include "tests/ops/conv/conv_comparison.h"

using namespace mpigrad::testing;

namespace {

// One or two axes of a few elements; windows that begin far before them or after their beginning.
ConvProblem random_slab() {
  ConvProblem p = random_conv();
  const std::int64_t first = pick(0, 2);
  for (std::int64_t i = 0; i < pick(1, 2); ++i) {
    const auto a = static_cast<std::size_t>((first + i) % 3);
    p.in[a] = pick(1, 3), p.kernel[a] = pick(1, 5);
    const std::int64_t reach = p.dilation[a] * (p.kernel[a] - 1) + 1;
    p.pad_low[a] = pick(0, 3) == 0 ? pick(-2, reach + 2) : pick(0, 1) * (reach - 1);
    p.out[a] = pick(1, 4);
  }
  return p;
}

// True if the tap reads any input, by definition.
bool meets_input(const ConvProblem& p, std::size_t a, std::int64_t t) {
  for (std::int64_t o = 0; o < p.out[a]; ++o) {
    const std::int64_t i = o * p.stride[a] + t * p.dilation[a] - p.pad_low[a];
    if (i >= 0 && i < p.in[a]) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("slabs: fast convolutions are the plain ones") {
  int fewer = 0, flat = 0, cropped = 0, strided = 0, grouped = 0;
  for (int i = 0; i < 400; ++i) {
    const ConvProblem p = random_slab();
    equal_conv<Fast>(p);
    if (i % 4 == 0) compare_conv<Fast, float>(p);
    const ReducedConv reduced(p);
    fewer += reduced.drops_taps(), flat += reduced.problem().in != p.in, grouped += p.groups > 1;
    for (std::size_t a = 0; a < 3; ++a) cropped += p.pad_low[a]<0, strided += p.stride[a]> 1;
  }
  // Every kind occurs.
  for (const int kind : {fewer, flat, cropped, strided, grouped}) CHECK(kind > 20);
}

TEST_CASE("slabs: no more taps are kept than from the first that meets an input to the last") {
  for (int i = 0; i < 300; ++i) {
    const ConvProblem p = random_slab();
    INFO(text(p));
    std::int64_t met = 1;
    for (std::size_t a = 0; a < 3; ++a) {
      std::int64_t begin = p.kernel[a], end = 0;
      for (std::int64_t t = 0; t < p.kernel[a]; ++t)
        if (meets_input(p, a, t)) begin = std::min(begin, t), end = t + 1;
      met *= std::max<std::int64_t>(0, end - begin);
    }
    // A problem with only padding is unchanged.
    CHECK(volume(ReducedConv(p).problem().kernel) == (met > 0 ? met : volume(p.kernel)));
  }
}

TEST_CASE("slabs: halos of a kernel of 3 become flat and lie in front") {
  const ConvProblem below{.batch = 2,
                          .in = {64, 64, 1},
                          .out = {64, 64, 1},
                          .kernel = {3, 3, 3},
                          .pad_low = {1, 1, 2},
                          .in_channels = 32,
                          .out_channels = 32};
  ConvProblem expected = below;
  expected.in = expected.out = {1, 64, 64}, expected.kernel = {1, 3, 3}, expected.pad_low = {0, 1, 1};
  CHECK(ReducedConv(below).problem() == expected);
  ConvProblem deep = below;  // nothing has to move in depth
  deep.in = deep.out = {1, 64, 64}, deep.pad_low = {0, 1, 1};
  CHECK(ReducedConv(deep).problem() == expected);
  ConvProblem strided = below;  // a single output needs no space between outputs
  strided.stride[2] = 2;
  CHECK(ReducedConv(strided).problem() == expected);
}

// The pairs of a width of 2 that no tap connects are merged with the height into one axis.
TEST_CASE("slabs: a thin width that taps do not connect is one axis with the height") {
  const ConvProblem p{.batch = 1,
                      .in = {9, 8, 2},
                      .out = {9, 8, 2},
                      .kernel = {3, 3, 3},
                      .dilation = {1, 1, 2},
                      .pad_low = {1, 1, 0},
                      .in_channels = 3,
                      .out_channels = 5};
  ConvProblem expected = p;
  expected.in = expected.out = {1, 9, 16}, expected.kernel = {1, 3, 3}, expected.dilation = {1, 1, 2};
  expected.pad_low = {0, 1, 2};
  CHECK(ReducedConv(p).problem() == expected);
  equal_conv<Fast>(p);
}

TEST_CASE("slabs: weights are added up in parts along the first axis that has any") {
  const ConvProblem p{.batch = 2,
                      .in = {300, 301, 1},
                      .out = {300, 301, 1},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 0},
                      .in_channels = 2,
                      .out_channels = 3};
  equal_conv<Fast>(p);
}
