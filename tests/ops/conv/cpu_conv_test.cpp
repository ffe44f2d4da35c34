// Fast convolutions against the plain ones, adjoints against forwards, and the rule that no network's shape may use a reference
// implementation of oneDNN. The optimised kernels depend on the processor, but no test does: without an optimised kernel, the
// gathered products are used. ONEDNN_MAX_CPU_ISA=AVX2 makes oneDNN behave as on a lesser processor.

#include <doctest/doctest.h>
#include <omp.h>

#include <thread>

#include "ops/backends/implementation.h"
#include "tests/ops/conv/conv_comparison.h"
#include "tests/support/skip.h"

using namespace mpigrad::testing;

TEST_CASE("plain convolutions: one worked example, and double against float") {
  // x = 1 2 3 4, w = 1 10 100, stride 2, one zero on the left, outputs 3 (the last one reaches beyond the right edge).
  const ConvProblem p{.batch = 1,
                      .in = {1, 1, 4},
                      .out = {1, 1, 3},
                      .kernel = {1, 1, 3},
                      .stride = {1, 1, 2},
                      .pad_low = {0, 0, 1},
                      .in_channels = 1,
                      .out_channels = 1};
  const std::vector<double> x{1, 2, 3, 4}, w{1, 10, 100}, g{1, 2, 3};
  std::vector<double> y(3), gx(4), gw(3);
  reference::conv_forward(p, x.data(), w.data(), y.data());
  CHECK(y == std::vector<double>{210, 432, 4});
  reference::conv_data(p, g.data(), w.data(), gx.data());
  CHECK(gx == std::vector<double>{10, 102, 20, 203});
  reference::conv_weight(p, x.data(), g.data(), gw.data());
  CHECK(gw == std::vector<double>{16, 7, 10});

  for (int i = 0; i < 20; ++i) {
    const ConvProblem q = random_conv();
    INFO(text(q));
    const auto xf = random_values<float>(sizes(q).x), wf = random_values<float>(sizes(q).w);
    auto yf = unset<float>(sizes(q).y);
    auto yd = unset<double>(sizes(q).y);
    reference::conv_forward(q, xf.data(), wf.data(), yf.data());
    reference::conv_forward(q, cast<double>(xf).data(), cast<double>(wf).data(), yd.data());
    CHECK(error_in_epsilons(yf, cast<float>(yd), magnitude(yf)) <= 1);
  }
}

TEST_CASE("gathered convolutions, and those of small problems, agree with the plain ones, float and double") {
  for (int i = 0; i < 200; ++i) {
    const ConvProblem p = random_conv();
    compare_conv<Gathered, double>(p);
    if (i % 4 == 0) compare_conv<Gathered, float>(p);
    if (i % 4 == 1) compare_conv<Small, float>(p);
  }
}

TEST_CASE("fast convolutions agree with the plain ones") {
  int by_library = 0, cropped = 0, grouped = 0, beyond = 0;
  constexpr int problems = 150;
  for (int i = 0; i < problems; ++i) {
    const ConvProblem p = random_conv();
    compare_conv<Fast, float>(p);
    if (implementation_of(Pass::data, p) == "gathered") continue;
    ++by_library;
    grouped += p.groups > 1;
    bool short_of_edge = false, past_edge = false;
    for (std::size_t a = 0; a < 3; ++a) {
      const std::int64_t end = (p.out[a] - 1) * p.stride[a] + (p.kernel[a] - 1) * p.dilation[a] + 1 - p.pad_low[a];
      short_of_edge |= end < p.in[a];
      past_edge |= end > p.in[a];
    }
    cropped += short_of_edge;
    beyond += past_edge;
  }
  // The problems above test the library only if it computes enough of every kind, which depends on the processor.
  if (onednn_present() && (by_library <= problems / 4 || cropped <= 3 || grouped <= 3 || beyond <= 3))
    count_skipped("fast convolutions agree with the plain ones, by oneDNN",
                  "oneDNN has no optimised kernels for most windows on this processor");
  compare_conv<Fast, double>(random_conv());
}

TEST_CASE("no layer of CosmoFlow falls to a reference kernel of the library") {
  for (const std::int64_t width : {16, 32, 64, 128, 512}) {
    const std::int64_t channels[] = {4, 16, 32, 64, 128, 256, 256, 256};
    std::int64_t in = width;
    for (std::size_t i = 0; i < 7; ++i) {
      const std::int64_t stride = i == 3 && in > 4 ? 2 : 1;
      std::int64_t out = (in + stride - 1) / stride;
      // The whole layer, and one slab of a split in depth together with its halo: no padding in depth.
      for (const bool slab : {false, true}) {
        ConvProblem p{.batch = 1,
                      .in = {in, in, in},
                      .out = {out, out, out},
                      .kernel = {3, 3, 3},
                      .stride = {stride, stride, stride},
                      .pad_low = {1, 1, 1},
                      .in_channels = channels[i],
                      .out_channels = channels[i + 1]};
        if (slab && out < 4) continue;
        if (slab) p.out[0] = out / 2, p.in[0] = (out / 2 - 1) * stride + 3, p.pad_low[0] = 0;
        INFO(text(p));
        for (const Pass pass : {Pass::forward, Pass::data, Pass::weight}) {
          const std::string name = implementation_of(pass, p);
          CHECK(name.find("ref") == std::string::npos);
        }
      }
      if (out > 2) {
        const std::int64_t half = (out + 1) / 2;
        const PoolProblem q{.batch = 1,
                            .in = {out, out, out},
                            .out = {half, half, half},
                            .kernel = {3, 3, 3},
                            .stride = {2, 2, 2},
                            .pad_low = {1, 1, 1},
                            .channels = channels[i + 1]};
        const std::string name = implementation_of(q);
        CHECK(name.find("ref") == std::string::npos);
        out = half;
      }
      in = out;
    }
  }
}

// On AVX2 oneDNN leaves these to the gathered products: slabs of the first layers, an eighth of a plane, together with their halo
// or with padding as lower planes.
TEST_CASE("large layers of few channels: the gathered products are the plain ones, whatever the library takes") {
  struct Layer {
    std::int64_t width, in, out;
  };
  for (const Layer& layer : {Layer{512, 4, 16}, Layer{256, 16, 32}})
    for (const std::int64_t low : {0, 1}) {
      const ConvProblem p{.batch = 1,
                          .in = {3 - low, layer.width / 8 + 2 - low, layer.width},
                          .out = {1, layer.width / 8, layer.width},
                          .kernel = {3, 3, 3},
                          .pad_low = {low, low, 1},
                          .in_channels = layer.in,
                          .out_channels = layer.out};
      equal_conv<Gathered>(p);
      if (low == 0) equal_conv<Fast>(p);
    }
}

// oneDNN 2.6 with AVX-512 computes wrong numbers, different ones each time, and writes beyond its buffer.
TEST_CASE("gradients of weights where windows reach over both ends of the depth") {
  struct Depth {
    std::int64_t in, kernel, stride, low, high;
  };
  for (const Depth& d : {Depth{7, 7, 2, 3, 3}, Depth{4, 4, 2, 3, 1}, Depth{2, 5, 1, 4, 1}, Depth{6, 5, 3, 4, 1},
                         Depth{5, 7, 4, 5, 4}, Depth{8, 8, 2, 3, 5}, Depth{10, 8, 4, 5, 3}, Depth{4, 7, 1, 5, 4}})
    for (const std::int64_t channels : {1, 5, 16, 17})
      equal_conv<Fast>({.batch = 3,
                        .in = {d.in, 7, 7},
                        .out = {(d.in + d.low + d.high - d.kernel) / d.stride + 1, 6, 6},
                        .kernel = {d.kernel, 2, 2},
                        .stride = {d.stride, 1, 1},
                        .pad_low = {d.low, 0, 0},
                        .in_channels = 5,
                        .out_channels = channels});
}

// A gradient of weights over many cells is summed in parts: planes of large volumes, samples of large batches.
TEST_CASE("gradients of weights that are added up in parts") {
  const ConvProblem planes{.batch = 2,
                           .in = {23, 66, 65},
                           .out = {23, 66, 65},
                           .kernel = {3, 3, 3},
                           .pad_low = {1, 1, 1},
                           .in_channels = 2,
                           .out_channels = 3};
  equal_conv<Fast>(planes);
  auto other = planes;  // strided and dilated; the last window ends in the padding after it
  other.in = {41, 131, 129}, other.out = {20, 66, 65}, other.kernel = {4, 3, 3}, other.stride = {2, 2, 2};
  other.dilation = {2, 1, 1}, other.pad_low = {3, 1, 1};
  equal_conv<Fast>(other);
  other = planes;  // planes that lie completely in padding
  other.in = {2, 130, 130}, other.out = {12, 130, 130}, other.kernel = {1, 3, 3}, other.pad_low = {5, 1, 1};
  equal_conv<Fast>(other);
  other = planes;
  other.batch = 190, other.in = other.out = {1, 30, 31}, other.kernel = {1, 3, 3}, other.pad_low = {0, 1, 1};
  equal_conv<Fast>(other);
}

// Summed one after the other with equal roundings, the sums would be wrong by a hundredth and more. The bound is that of 2^16
// sums whose roundings all have the same direction.
TEST_CASE("gradients of weights over millions of equal cells") {
  const ConvProblem p{.batch = 1,
                      .in = {130, 130, 130},
                      .out = {130, 130, 130},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 4,
                      .out_channels = 4};
  const auto n = sizes(p);
  const std::vector<float> x(static_cast<std::size_t>(n.x), 0.7F), g(static_cast<std::size_t>(n.y), 0.3F);
  auto gw = unset<float>(n.w);
  conv_weight(p, x.data(), g.data(), gw.data());
  const double each = static_cast<double>(0.7F) * static_cast<double>(0.3F);
  for (std::int64_t i = 0; i < n.w; ++i) {
    double cells = 1;  // cells that a tap reads
    for (const auto tap : {i / 4 % 3, i / 12 % 3, i / 36 % 3}) cells *= tap == 1 ? 130 : 129;
    REQUIRE(std::abs(static_cast<double>(gw[static_cast<std::size_t>(i)]) - cells * each) < 0x1p-8 * cells * each);
  }
}

// Batches of small images, as in encoders of contrastive training: one and three channels, flat kernels, strided 1x1.
TEST_CASE("no layer of image encoders falls to a reference kernel of the library") {
  struct Layer {
    std::int64_t extent, kernel, stride, in, out;
  };
  const std::vector<Layer> layers{{28, 3, 1, 1, 64},    {32, 3, 1, 3, 64},    {105, 3, 1, 1, 64},  {28, 3, 1, 1, 32},
                                  {14, 3, 1, 64, 64},   {7, 3, 1, 64, 64},    {3, 3, 1, 64, 64},   {224, 7, 2, 3, 64},
                                  {56, 3, 1, 64, 64},   {56, 3, 2, 64, 128},  {56, 1, 2, 64, 128}, {56, 1, 1, 64, 256},
                                  {56, 3, 2, 128, 128}, {28, 3, 2, 128, 256}, {7, 1, 1, 512, 2048}};
  for (const auto& layer : layers)
    for (const bool strip : {false, true}) {  // the upper half of a split in height, with its halo from below
      const auto pad = layer.kernel / 2, out = (layer.extent + layer.stride - 1) / layer.stride;
      ConvProblem p{.batch = 128,
                    .in = {1, layer.extent, layer.extent},
                    .out = {1, out, out},
                    .kernel = {1, layer.kernel, layer.kernel},
                    .stride = {1, layer.stride, layer.stride},
                    .pad_low = {0, pad, pad},
                    .in_channels = layer.in,
                    .out_channels = layer.out};
      if (strip) p.out[1] = out / 2, p.in[1] = (out / 2 - 1) * layer.stride + layer.kernel - pad;
      INFO(text(p));
      for (const Pass pass : {Pass::forward, Pass::data, Pass::weight}) {
        const std::string name = implementation_of(pass, p);
        CHECK(name.find("ref") == std::string::npos);
      }
    }
}

TEST_CASE("a fused ReLU keeps NaN") {
  const ConvProblem p{.batch = 1,
                      .in = {4, 4, 4},
                      .out = {4, 4, 4},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 16,
                      .out_channels = 16};
  const std::vector<float> x(64 * 16, std::numeric_limits<float>::quiet_NaN()), w(16 * 27 * 16, 1.0F);
  for (const double slope : {0.0, 0.01, 1.0}) {
    auto y = std::vector<float>(64 * 16, 0.0F);
    conv_forward(p, x.data(), w.data(), y.data(), {.fused = {slope}});
    CHECK(std::isnan(y[0]));
  }
}

TEST_CASE("several threads share primitives and agree") {
  ConvProblem p{.batch = 1,
                .in = {9, 8, 8},
                .out = {9, 8, 8},
                .kernel = {3, 3, 3},
                .pad_low = {1, 1, 1},
                .in_channels = 16,
                .out_channels = 32};
  const Sizes n = sizes(p);
  const auto x = random_values<float>(n.x), w = random_values<float>(n.w), g = random_values<float>(n.y);
  struct Result {
    std::vector<float> y, gx, gw;
  };
  const auto run = [&] {
    omp_set_num_threads(1);
    Result r{unset<float>(n.y), unset<float>(n.x), unset<float>(n.w)};
    for (int i = 0; i < 20; ++i) {
      conv_forward(p, x.data(), w.data(), r.y.data(), {.fused = {0.1}});
      conv_data(p, g.data(), w.data(), r.gx.data());
      conv_weight(p, x.data(), g.data(), r.gw.data());
    }
    return r;
  };
  std::vector<Result> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&result, &run] { result = run(); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    CHECK(result.y == results[0].y);
    CHECK(result.gx == results[0].gx);
    CHECK(result.gw == results[0].gw);
  }
}

TEST_CASE("the three convolutions are one trilinear form") {
  for (int i = 0; i < 50; ++i) {
    const ConvProblem p = random_conv();
    adjoints_conv<Reference, double>(p);
    adjoints_conv<Gathered, double>(p);
    adjoints_conv<Fast, double>(p);
    adjoints_conv<Fast, float>(p);
  }
}

TEST_CASE("convolutions of nothing") {
  ConvProblem p{.batch = 0,
                .in = {4, 4, 4},
                .out = {4, 4, 4},
                .kernel = {3, 3, 3},
                .pad_low = {1, 1, 1},
                .in_channels = 4,
                .out_channels = 8};
  compare_conv<Fast, float>(p);
  compare_conv<Fast, double>(p);
  p.batch = 1;
  p.out = {0, 4, 4};
  compare_conv<Fast, float>(p);
  compare_conv<Fast, double>(p);
  p.in = {0, 4, 4};
  p.out = {2, 4, 4};  // windows completely in padding
  compare_conv<Fast, float>(p);
  compare_conv<Fast, double>(p);
  p.pad_low = {-1, 0, 2};  // cropped on the left
  p.in = {5, 4, 4};
  compare_conv<Fast, float>(p);
  compare_conv<Fast, double>(p);
}
