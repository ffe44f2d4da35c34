// Convolutions of bfloat16 on the CPU, by the processor's own instructions or in float32: within one rounding of the plain ones
// of the same numbers, on any processor.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/engine/tape.h"
#include "ops/backends/implementation.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/relative_error.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t key) { return random_normal(shape, {.key = key}, 0, 1, DType::bfloat16); }

std::vector<double> values(const Tensor& x) { return x.to_vector(); }
bool same(const Tensor& a, const Tensor& b) { return a.type() == b.type() && a.to_vector() == b.to_vector(); }

// Allows half a unit in the last of 8 digits, plus the error of summation in float32 and of flushing subnormal numbers to 0,
// relative to the same sum over magnitudes.
void check_close(const char* what, const Tensor& found, const std::vector<double>& expected, const std::vector<double>& scale) {
  const auto got = found.to_vector();
  REQUIRE(got.size() == expected.size());
  CHECK(found.dtype() == DType::bfloat16);
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]) / (0x1.01p-8 * std::abs(expected[i]) + 1e-5 * scale[i] + 1e-30);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  INFO(std::string(what));
  CHECK(worst <= 1);
}

// The inputs and attributes of one problem.
struct Operands {
  Tensor x, w, g;
  ConvAttributes a;
};

Operands operands_of(const ConvProblem& p, std::uint64_t key) {
  Operands o{.x = numbers({p.batch, p.in[0], p.in[1], p.in[2], p.in_channels}, key),
             .w = numbers({p.out_channels, p.kernel[0], p.kernel[1], p.kernel[2], p.in_channels / p.groups}, key + 1),
             .g = numbers({p.batch, p.out[0], p.out[1], p.out[2], p.out_channels}, key + 2),
             .a = {.stride = p.stride, .dilation = p.dilation, .padding = Padding::sides(p.pad_low, 0), .groups = p.groups}};
  for (std::size_t i = 0; i < 3; ++i) o.a.padding.high[i] = pad_high(p, i);
  return o;
}

// Checks all ops of one problem against the plain kernels in double; returns the number of passes by the processor's own
// instructions.
int check_problem(const ConvProblem& p, std::uint64_t key) {
  INFO(text(p));
  const auto [x, w, g, a] = operands_of(p, key);
  const Tensor bias = numbers({p.out_channels}, key + 3);
  const auto xs = values(x), ws = values(w), gs = values(g), bs = values(bias);
  const auto ax = magnitude(xs), aw = magnitude(ws), ag = magnitude(gs), ab = magnitude(bs);
  const Sizes n = sizes(p);
  for (const double slope : {1.0, 0.0, 0.25}) {
    auto y = unset<double>(n.y), scale = y;
    reference::conv_forward(p, xs.data(), ws.data(), y.data(), {.bias = bs.data(), .fused = {slope}});
    reference::conv_forward(p, ax.data(), aw.data(), scale.data(), {.bias = ab.data()});
    check_close("with bias", local::conv_bias_activation(x, w, bias, Activation::leaky_relu(slope), a), y, scale);
    reference::conv_forward(p, xs.data(), ws.data(), y.data(), {.fused = {slope}});
    check_close("without", local::conv_bias_activation(x, w, {}, Activation::leaky_relu(slope), a), y, scale);
  }
  auto gx = unset<double>(n.x), x_scale = gx, gw = unset<double>(n.w), w_scale = gw;
  reference::conv_data(p, gs.data(), ws.data(), gx.data());
  reference::conv_data(p, ag.data(), aw.data(), x_scale.data());
  check_close("data", conv_data(g, w, p.in, a), gx, x_scale);
  reference::conv_weight(p, xs.data(), gs.data(), gw.data());
  reference::conv_weight(p, ax.data(), ag.data(), w_scale.data());
  check_close("weight", conv_weight(x, g, p.kernel, a), gw, w_scale);
  // Weights of float32 give the same numbers (instructions for bfloat16 round them), and gradients that are not rounded.
  const auto w32 = [&, &w = w](Pass pass) {
    return cast(w, DType::float32) * (native_implementation_of(pass, p).empty() ? 1 : 1 + 0x1p-12);
  };
  CHECK(same(conv_data(g, w32(Pass::data), p.in, a), conv_data(g, w, p.in, a)));
  CHECK(same(local::conv_bias_activation(x, w32(Pass::forward), bias, Activation::relu, a),
             local::conv_bias_activation(x, w, bias, Activation::relu, a)));
  const auto gw32 = conv_weight(x, g, p.kernel, a, DType::float32);
  CHECK(gw32.dtype() == DType::float32);
  const auto sums = gw32.to_vector();
  for (std::size_t i = 0; i < gw.size(); ++i) REQUIRE(std::abs(sums[i] - gw[i]) <= 1e-5 * w_scale[i] + 1e-30);
  int native = 0;
  for (const Pass pass : {Pass::forward, Pass::data, Pass::weight}) native += !native_implementation_of(pass, p).empty();
  return native;
}

ConvProblem cube(std::int64_t n, std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  const auto outputs = (n + stride - 1) / stride;
  return {.batch = 2,
          .in = {n, n, n},
          .out = {outputs, outputs, outputs},
          .kernel = {3, 3, 3},
          .stride = {stride, stride, stride},
          .pad_low = {1, 1, 1},
          .in_channels = in,
          .out_channels = out};
}

}  // namespace

TEST_CASE("bfloat16 convolutions are the plain ones, rounded once") {
  int native = 0;
  for (const std::int64_t in : {1, 4, 5, 16, 32, 48})
    for (const std::int64_t out : {3, 16, 32})
      for (const std::int64_t stride : {1, 2}) native += check_problem(cube(9, in, out, stride), 10);
  ConvProblem grouped = cube(8, 32, 64);
  grouped.groups = 2;
  native += check_problem(grouped, 20);
  ConvProblem depthwise = cube(8, 32, 32);
  depthwise.groups = 32;
  native += check_problem(depthwise, 30);
  ConvProblem slab = cube(12, 32, 32);  // a halo next to a block: one tap in width
  slab.in[2] = slab.out[2] = 1, slab.pad_low[2] = 2;
  native += check_problem(slab, 40);
  ConvProblem pointwise = cube(9, 16, 48);
  pointwise.kernel = {1, 1, 1}, pointwise.pad_low = {0, 0, 0};
  native += check_problem(pointwise, 50);
  for (std::uint64_t i = 0; i < 60; ++i) native += check_problem(random_conv(), 100 + 10 * i);
  if (native < 20) count_skipped("bfloat16 convolutions by the processor's own instructions", "the processor or oneDNN has none");
}

TEST_CASE("bfloat16 convolutions keep NaN, whatever the activation") {
  for (const double slope : {0.0, 0.01, 1.0}) {
    const Tensor x = full({1, 6, 6, 6, 32}, NAN, DType::bfloat16), w = numbers({32, 3, 3, 3, 32}, 1);
    const Tensor y = local::conv_bias_activation(x, w, {}, Activation::leaky_relu(slope), {.padding = 1});
    CHECK(std::ranges::all_of(y.to_vector(), [](double v) { return std::isnan(v); }));
    CHECK(std::ranges::all_of(conv_data(y, w, {6, 6, 6}, {.padding = 1}).to_vector(), [](double v) { return std::isnan(v); }));
  }
}

// In bfloat16 a sum of equal terms would stop after 256 terms; in float32 it would be wrong by a hundredth.
TEST_CASE("bfloat16 gradients of weights over many equal cells") {
  ConvProblem p = cube(100, 16, 16);
  p.batch = 1;
  const Tensor x = full({1, 100, 100, 100, 16}, 0.7, DType::bfloat16), g = full({1, 100, 100, 100, 16}, 0.3, DType::bfloat16);
  const auto found = conv_weight(x, g, p.kernel, {.padding = 1}).to_vector();
  const double each = values(full({1}, 0.7, DType::bfloat16))[0] * values(full({1}, 0.3, DType::bfloat16))[0];
  for (std::size_t i = 0; i < found.size(); ++i) {
    double cells = 1;  // cells that a tap reads
    for (const auto tap : {i / 16 % 3, i / 48 % 3, i / 144 % 3}) cells *= tap == 1 ? 100 : 99;
    REQUIRE(std::abs(found[i] - cells * each) < 0x1p-7 * cells * each);
  }
}

TEST_CASE("bfloat16 convolutions and their gradients are recorded in 16 bits") {
  const Tensor x = numbers({1, 8, 8, 8, 32}, 1).as_variable(), w = numbers({32, 3, 3, 3, 32}, 2).as_variable();
  Tape tape;
  const Tensor y = local::conv(x, w, {.padding = 1});
  CHECK(y.dtype() == DType::bfloat16);
  for (const auto& entry : tape.entries())
    for (const auto& input : entry.inputs) CHECK(input.dtype() == DType::bfloat16);
  for (const auto& gradient : tape.vjp({y}, {numbers(y.shape(), 3)}, {x, w})) CHECK(gradient.dtype() == DType::bfloat16);
}

TEST_CASE("16-bit convolutions with float32 weights have float32 gradients of weights, up to second order") {
  for (const DType type : {DType::bfloat16, DType::float16}) {
    const auto of = [&](const Shape& shape, std::uint64_t key, DType t) { return random_normal(shape, {.key = key}, 0, 0.1, t); };
    const Tensor x = of({1, 6, 6, 6, 16}, 1, type).as_variable(), w = of({16, 3, 3, 3, 16}, 2, DType::float32).as_variable();
    const ConvAttributes a{.padding = 1};
    // |d sum(y^2) / dw|^2 and its gradients, in 16 bits with float32 weights and in float64.
    const auto gradients = [&](const Tensor& of_x, const Tensor& of_w) {
      Tape outer;
      Tensor square;
      {
        Tape inner;
        const auto y = local::conv(of_x, of_w, a);
        const auto first = inner.gradient(sum(mpigrad::square(cast(y, DType::float64))), {of_w});
        CHECK(first[0].dtype() == of_w.dtype());
        square = sum(mpigrad::square(cast(first[0], DType::float64)));
      }
      return outer.gradient(square, {of_x, of_w});
    };
    const auto found = gradients(x, w);
    const auto expected = gradients(cast(x, DType::float64).as_variable(), cast(w, DType::float64).as_variable());
    CHECK(found[0].dtype() == type);
    CHECK(found[1].dtype() == DType::float32);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(relative_error(found[i].to_vector(), expected[i].to_vector()) < (type == DType::bfloat16 ? 0.02 : 0.003));
  }
}
