// Windows and products on CPU and GPU against the plain kernels in double, on the same rounded operands: max|a - b| / max|b|.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "ops/conv/conv.h"
#include "ops/gpu_settings.h"
#include "ops/linear/matmul.h"
#include "ops/pool/pool_ops.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/ops/kernel_problems.h"
#include "tests/ops/plain_comparison.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// A CPU computes everything in two of these kinds, so that no rounding of one result affects another.
std::vector<Kind> kinds_on(DeviceKind device) {
  return {std::begin(kinds), device == DeviceKind::cpu ? std::begin(kinds) + 2 : std::end(kinds)};
}
int problems_on(DeviceKind device, int on_gpu) { return device == DeviceKind::cpu ? 20 : cases(on_gpu); }

void check_product(const Kind& kind, bool no_terms, DeviceKind device);

}  // namespace

TEST_CASE_ON_DEVICES("convolutions of every kind", no_cudnn) {
  for (const auto& kind : kinds_on(device)) {
    const Settings settings(kind);
    for (int i = 0; i < problems_on(device, 60); ++i) check_conv(random_conv(), kind, device);
    check_conv(layer(16, 1, 4, 16), kind, device);
    check_conv(layer(16, 2, 1, 8), kind, device);
    check_conv(layer(8, 1, 32, 64), kind, device);
  }
  if (device == DeviceKind::cpu) return;
  auto nothing = layer(4, 1, 2, 3);
  nothing.batch = 0;
  check_conv(nothing, kinds[0], device);
  nothing = layer(4, 1, 2, 3);
  nothing.in[1] = 0, nothing.out = {4, 2, 4}, nothing.pad_low[1] = 2;  // windows completely in padding
  check_conv(nothing, kinds[1], device);
}

// Calls that emulated libraries are told to refuse (tests/emulation/vendor); real libraries ignore this.
TEST_CASE("gpu: convolutions and products whatever the libraries refuse") {
  if (no_cudnn("gpu: convolutions and products whatever the libraries refuse")) return;
  const char *cudnn = "MPIGRAD_EMULATED_CUDNN", *cublas = "MPIGRAD_EMULATED_CUBLASLT";
  for (const char* words : {"no-graphs,fail-3", "no-fusion,no-double-channels-last,whole-channels", "equal-padding,no-slope",
                            "no-channels-last,no-heuristics", "large-workspace,fail-50"}) {
    INFO(std::string(words));
    setenv(cudnn, words, 1);
    for (const auto& kind : kinds) {
      const Settings settings(kind);
      for (int i = 0; i < 3; ++i) check_conv(random_conv(), kind);
    }
  }
  unsetenv(cudnn);
  setenv(cublas, "no-bias", 1);
  for (int i = 0; i < 5; ++i) check_product(kinds[1], false, DeviceKind::cuda);
  unsetenv(cublas);
}

namespace {

ops::Window window_of(const PoolProblem& p) {
  return {.kernel = p.kernel, .stride = p.stride, .dilation = p.dilation, .low = p.pad_low, .in = p.in, .out = p.out};
}

void check_pool(const PoolProblem& p, const Kind& kind, DeviceKind device, const Values* image = nullptr) {
  INFO(label(kind), " ", windows(p), " channels ", p.channels);
  const auto window = window_of(p);
  const auto shape = activation(p.batch, p.in, p.channels);
  const Operand x(shape, kind.type, image ? *image : random_values<double>(shape.elements()), device),
      g(activation(p.batch, p.out, p.channels), kind.type, device);
  Values y(g.values.size()), gx(x.values.size());
  std::vector<std::int32_t> winner(y.size());
  if (!image) {
    reference::avg_pool_forward(p, x.values.data(), y.data());
    reference::avg_pool_adjoint(p, g.values.data(), gx.data());
    CHECK(relative_error(apply(ops::AvgPool{window}, {x.on_device}), y) < kind.tolerance);
    CHECK(relative_error(apply(ops::AvgPoolAdjoint{window}, {g.on_device}), gx) < kind.tolerance);
  }
  max_pool_forward(p, x.values.data(), y.data(), winner.data());
  const auto both = apply_all(ops::MaxPool{window}, {x.on_device});
  const auto got = both[0].to_vector(), places = both[1].to_vector();
  bool same = true;
  for (std::size_t i = 0; i < y.size(); ++i)
    same = same && places[i] == winner[i] && (got[i] == y[i] || (std::isnan(got[i]) && std::isnan(y[i])));
  CHECK(same);
  max_pool_scatter(p, g.values.data(), winner.data(), gx.data());
  CHECK(relative_error(apply(ops::MaxPoolScatter{window}, {g.on_device, both[1]}), gx) < kind.tolerance);
  if (image) return;
  max_pool_gather(p, x.values.data(), winner.data(), y.data());
  CHECK(relative_error(apply(ops::MaxPoolGather{window}, {x.on_device, both[1]}), y) == 0);
}

}  // namespace

TEST_CASE_ON_DEVICES("pools of every kind", no_gpu) {
  for (const auto& kind : kinds_on(device)) {
    for (int i = 0; i < problems_on(device, 80); ++i) check_pool(random_pool(), kind, device);
    // Ties, NaN and infinities; and windows completely in padding.
    PoolProblem p{.batch = 2,
                  .in = {5, 6, 7},
                  .out = {3, 3, 4},
                  .kernel = {3, 3, 3},
                  .stride = {2, 2, 2},
                  .pad_low = {1, 1, 1},
                  .channels = 4};
    Values image(static_cast<std::size_t>(sizes(p).x));
    const double special[] = {0,
                              0,
                              1,
                              1,
                              -1,
                              std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()};
    for (auto& value : image) value = special[pick(0, 7)];
    check_pool(p, kind, device, &image);
    p.pad_low = {4, 1, 1};
    check_pool(p, kind, device);
  }
}

namespace {

void check_product(const Kind& kind, bool no_terms, DeviceKind device) {
  const std::int64_t extents[] = {1, 3, 8, 17, 64, 130};
  MatmulProblem p{.batch = pick(1, 3),
                  .m = extents[pick(0, 5)],
                  .n = extents[pick(0, 5)],
                  .k = no_terms ? 0 : extents[pick(0, 5)],
                  .transpose_a = pick(0, 1) == 1,
                  .transpose_b = pick(0, 1) == 1};
  const bool repeats = pick(0, 3) == 0;
  p.stride_a = p.m * p.k, p.stride_b = repeats ? 0 : p.k * p.n;
  INFO(label(kind), " batch ", p.batch, " m ", p.m, " n ", p.n, " k ", p.k, " ", p.transpose_a, p.transpose_b, repeats);
  const Shape a_shape = p.transpose_a ? Shape{p.batch, p.k, p.m} : Shape{p.batch, p.m, p.k};
  Shape b_shape = repeats ? Shape{} : Shape{p.batch};
  for (const auto n : {p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n}) b_shape.push_back(n);
  const Operand a(a_shape, kind.type, device), b(b_shape, kind.type, device);
  Values c(static_cast<std::size_t>(p.batch * p.m * p.n));
  reference::matmul(p, a.values.data(), b.values.data(), c.data());
  CHECK(relative_error(apply(ops::Matmul{{p.transpose_a, p.transpose_b}}, {a.on_device, b.on_device}), c) < kind.tolerance);

  p.batch = 1, p.transpose_a = false, p.transpose_b = true;
  const Operand x({p.m, p.k}, kind.type, device), w({p.n, p.k}, kind.type, device), bias(Shape{p.n}, kind.type, device);
  c.resize(static_cast<std::size_t>(p.m * p.n));
  reference::matmul(p, x.values.data(), w.values.data(), c.data());
  const auto sums = c;
  for (const double slope : {1.0, 0.0, 0.2}) {
    reference::matmul(p, x.values.data(), w.values.data(), c.data(), {.bias = bias.values.data(), .fused = {slope}});
    const auto got = apply(ops::Linear{slope}, {x.on_device, w.on_device, bias.on_device});
    CHECK(error_with_bias(got, c, sums, bias.values) < kind.tolerance);
  }
}

}  // namespace

TEST_CASE_ON_DEVICES("products of matrices", no_cublas) {
  for (const auto& kind : kinds_on(device)) {
    const Settings settings(kind);
    for (int i = 0; i < problems_on(device, 80); ++i) check_product(kind, i % 10 == 0, device);
  }
}
