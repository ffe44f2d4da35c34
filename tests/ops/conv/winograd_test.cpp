// Convolutions by Winograd's algorithm against the plain ones, for every vector width of the processor.

#include <doctest/doctest.h>
#include <omp.h>

#include "ops/backends/winograd/winograd_kernels.h"
#include "tests/ops/conv/conv_comparison.h"

using namespace mpigrad::testing;

namespace {

ConvProblem random_winograd() {
  ConvProblem p{.batch = pick(1, 2),
                .kernel = {3, 3, 3},
                .in_channels = 16 * pick(1, 3),
                .out_channels = 16 * (pick(0, 5) == 0 ? pick(8, 10) : pick(1, 3))};
  for (std::size_t a = 0; a < 3; ++a) {
    p.in[a] = pick(1, 7);
    p.pad_low[a] = pick(-2, 3);  // negative paddings skip inputs, and more than two give outputs of padding only
    p.out[a] = pick(1, 8);
  }
  if (pick(0, 2) == 0) p.kernel[0] = 1, p.pad_low[0] = 0, p.out[0] = p.in[0];
  return p;
}

}  // namespace

TEST_CASE("Winograd's convolutions agree with the plain ones: any extents, paddings and channels") {
  for (int i = 0; i < 40; ++i) {
    const ConvProblem p = random_winograd();
    REQUIRE(winograd::possible(p));
    if (i % 2 == 0) equal_conv<Winograd>(p);
    else compare_conv<Winograd, float>(p);
  }
}

TEST_CASE("Winograd's convolutions are the same bits on any number of threads, but for sums over shared tiles") {
  const ConvProblem p{.batch = 1,
                      .in = {9, 13, 11},
                      .out = {9, 13, 11},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 32,
                      .out_channels = 48};
  const Sizes n = sizes(p);
  const auto x = random_values<float>(n.x), w = random_values<float>(n.w), g = random_values<float>(n.y);
  const int before = omp_get_max_threads();
  std::vector<float> first_y, first_gx;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    auto y = unset<float>(n.y), gx = unset<float>(n.x);
    winograd::conv_forward(p, x.data(), w.data(), y.data());
    winograd::conv_data(p, g.data(), w.data(), gx.data());
    equal_conv<Winograd>(p);
    if (threads == 1) first_y = y, first_gx = gx;
    CHECK((y == first_y));
    CHECK((gx == first_gx));
  }
  omp_set_num_threads(before);
}

TEST_CASE("what Winograd's filtering does not take: other windows, groups, and channels that do not fill vectors") {
  const ConvProblem p{.batch = 1,
                      .in = {8, 8, 8},
                      .out = {8, 8, 8},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 16,
                      .out_channels = 32};
  CHECK(winograd::possible(p));
  const auto refused = [&](auto change) {
    ConvProblem q = p;
    change(q);
    return !winograd::possible(q) && !winograd::suits(Pass::forward, q);
  };
  const auto flat = [&](std::int64_t pad, std::int64_t out) {
    ConvProblem q = p;
    q.kernel[0] = 1, q.pad_low[0] = pad, q.out[0] = out;
    return winograd::possible(q);
  };
  CHECK(flat(0, 8));
  CHECK_FALSE(flat(1, 8));
  CHECK_FALSE(flat(0, 7));
  CHECK(refused([](auto& q) { q.kernel[1] = 1; }));
  CHECK(refused([](auto& q) { q.stride[2] = 2; }));
  CHECK(refused([](auto& q) { q.dilation[0] = 2; }));
  CHECK(refused([](auto& q) { q.groups = 2; }));
  CHECK(refused([](auto& q) { q.in_channels = 24; }));
  CHECK(refused([](auto& q) { q.out_channels = 4; }));
  CHECK(refused([](auto& q) { q.out[0] = 0; }));
  CHECK(refused([](auto& q) { q.batch = 0; }));
}

TEST_CASE("Winograd's kernels give the same numbers by every width of vectors") {
  const auto& all = winograd::supported();
  const auto& plain = all.back();
  constexpr std::int64_t channels = 32, stride = channels + 16;
  const auto cells = small_integers(64 * channels), transformed = small_integers(64 * stride), bias = small_integers(channels);
  for (const auto& kernels : all)
    for (int i = 0; i < 30; ++i) {
      winograd::Cells at{.step = {16 * channels, 4 * channels, channels}};
      for (std::size_t a = 0; a < 3; ++a) at.begin[a] = i == 0 ? -1 : pick(-1, 2), at.end[a] = i == 0 ? 9 : pick(1, 5);
      const auto same = [&](std::int64_t size, auto run) {
        std::vector<float> got(static_cast<std::size_t>(size), 7), wanted = got;
        run(kernels, got.data());
        run(plain, wanted.data());
        CHECK((got == wanted));
      };
      for (const auto of : {&winograd::Kernels::volume, &winograd::Kernels::flat}) {
        if (of == &winograd::Kernels::flat) at.begin[0] = 0, at.end[0] = 1;
        same(64 * stride, [&](const auto& k, float* v) { (k.*of).input(at, channels, cells.data(), v, stride); });
        same(64 * stride, [&](const auto& k, float* v) { (k.*of).gradient(at, channels, cells.data(), v, stride); });
        for (const float slope : {1.0F, 0.0F, 0.25F})
          same(64 * channels, [&](const auto& k, float* y) {
            (k.*of).output(at, channels, transformed.data(), stride, slope == 0.25F ? nullptr : bias.data(), {slope}, y);
          });
        same(64 * stride, [&](const auto& k, float* u) { (k.*of).weight(channels, cells.data(), channels, u, stride); });
        same(27 * channels,
             [&](const auto& k, float* t) { (k.*of).weight_gradient(channels, transformed.data(), stride, t, channels); });
      }
      const std::int64_t m = pick(1, 40), n = 16 * pick(1, 3), k = pick(1, 20);
      const auto a = small_integers(m * k), b = small_integers(k * n);
      for (const bool accumulate : {false, true})
        for (const bool transposed : {false, true})
          same(m * n, [&](const auto& of, float* c) {
            of.product(m, n, k, a.data(), transposed ? 1 : k, transposed ? m : 1, b.data(), n, accumulate, c, n);
          });
    }
}
