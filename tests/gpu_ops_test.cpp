// Windows and products on a GPU against the plain CPU kernels in double, on the same rounded operands: max|a - b| / max|b|.

#include <doctest/doctest.h>

#include <limits>

#include "framework/cuda/cuda.h"
#include "framework/error.h"
#include "ops/conv.h"
#include "ops/device.h"
#include "ops/gpu_settings.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/views.h"
#include "tests/support/gpu.h"
#include "tests/support/kernel_problems.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

DeviceKind device = DeviceKind::cuda;

struct Kind {
  DType type = DType::float32;
  bool tf32 = false;
  double tolerance = 0;
};
const Kind kinds[] = {{DType::float64, false, 1e-10},
                      {DType::float32, false, 1e-5},
                      {DType::float32, true, 4e-3},
                      {DType::bfloat16, false, 1e-2},
                      {DType::float16, false, 2e-3}};

std::string label(const Kind& kind) { return fmt::format("{}{}", name_of(kind.type), kind.tf32 ? " (TF32)" : ""); }

class Settings {
 public:
  explicit Settings(const Kind& kind, bool autotune = false) : before_(gpu_settings()) {
    auto settings = before_;
    settings.tf32 = kind.tf32, settings.autotune = autotune;
    set_gpu_settings(settings);
  }
  ~Settings() { set_gpu_settings(before_); }

 private:
  GpuSettings before_;
};

// Random numbers that `type` holds exactly, on both sides.
struct Operand {
  Values values;
  Tensor on_device;
  Operand(const Shape& shape, DType type) : Operand(shape, type, random_values<double>(shape.elements())) {}
  Operand(const Shape& shape, DType type, const Values& wanted) {
    const auto rounded = from_vector(shape, wanted, type);
    values = rounded.to_vector();
    on_device = to(rounded, device);
  }
};

double relative_error(const Tensor& got, const Values& wanted) { return testing::relative_error(got.to_vector(), wanted); }

Shape activation(std::int64_t batch, const Extent3& e, std::int64_t channels) { return {batch, e[0], e[1], e[2], channels}; }

ConvAttributes attributes_of(const ConvProblem& p) {
  ConvAttributes a{.stride = p.stride, .dilation = p.dilation, .padding_low = p.pad_low, .groups = p.groups};
  for (std::size_t i = 0; i < 3; ++i)
    a.padding_high[i] = (p.out[i] - 1) * p.stride[i] + p.dilation[i] * (p.kernel[i] - 1) + 1 - p.in[i] - p.pad_low[i];
  return a;
}

void check_conv(const ConvProblem& p, const Kind& kind) {
  INFO(label(kind), " ", text(p));
  const auto a = attributes_of(p);
  const Shape weights{p.out_channels, p.kernel[0], p.kernel[1], p.kernel[2], p.in_channels / p.groups};
  const Operand x(activation(p.batch, p.in, p.in_channels), kind.type), w(weights, kind.type),
      g(activation(p.batch, p.out, p.out_channels), kind.type), bias(Shape{p.out_channels}, kind.type);
  Values y(g.values.size()), gx(x.values.size()), gw(w.values.size());
  reference::conv_forward(p, x.values.data(), w.values.data(), y.data());
  reference::conv_data(p, g.values.data(), w.values.data(), gx.data());
  reference::conv_weight(p, x.values.data(), g.values.data(), gw.data());
  CHECK(relative_error(apply(ops::Conv{a}, {x.on_device, w.on_device}), y) < kind.tolerance);
  CHECK(relative_error(apply(ops::ConvData{a, p.in}, {g.on_device, w.on_device}), gx) < kind.tolerance);
  CHECK(relative_error(apply(ops::ConvWeight{a, p.kernel}, {x.on_device, g.on_device}), gw) < kind.tolerance);
  for (const double slope : {1.0, 0.0, 0.01}) {
    reference::conv_forward(p, x.values.data(), w.values.data(), y.data(), {.bias = bias.values.data(), .slope = slope});
    INFO("bias, slope ", slope);
    CHECK(relative_error(apply(ops::ConvBiasActivation{a, slope}, {x.on_device, w.on_device, bias.on_device}), y) <
          kind.tolerance);
  }
}

ConvProblem layer(std::int64_t in, std::int64_t stride, std::int64_t c, std::int64_t k) {
  const auto out = (in + stride - 1) / stride;
  return {.batch = 1,
          .in = {in, in, in},
          .out = {out, out, out},
          .kernel = {3, 3, 3},
          .stride = {stride, stride, stride},
          .pad_low = {1, 1, 1},
          .in_channels = c,
          .out_channels = k};
}

}  // namespace

TEST_CASE("gpu: convolutions of every kind") {
  if (no_cudnn("gpu: convolutions of every kind")) return;
  for (const auto& kind : kinds) {
    const Settings settings(kind);
    for (int i = 0; i < 60; ++i) check_conv(random_conv(), kind);
    check_conv(layer(16, 1, 4, 16), kind);
    check_conv(layer(16, 2, 1, 8), kind);
    check_conv(layer(8, 1, 32, 64), kind);
  }
}

TEST_CASE("gpu: convolutions timed once") {
  if (no_cudnn("gpu: convolutions timed once")) return;
  for (const auto& kind : kinds) {
    const Settings settings(kind, true);
    for (int i = 0; i < 6; ++i) check_conv(random_conv(), kind);
    check_conv(layer(16, 1, 4, 16), kind);
  }
}

TEST_CASE("gpu: a convolution keeps NaN and infinities through its activation") {
  if (no_cudnn("gpu: a convolution keeps NaN and infinities through its activation")) return;
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const auto& kind : kinds) {
    INFO(label(kind));
    const Settings settings(kind);
    // A kernel of one tap, with as many channels as tensor cores take: outputs are copies of inputs.
    Values eye(64, 0), values(static_cast<std::size_t>(8 * 8 * 8 * 8), 1.0);
    for (std::size_t i = 0; i < 8; ++i) eye[i * 9] = 1;
    for (std::size_t i = 0; i < 8; ++i) values[i] = nan, values[64 + i] = infinity, values[128 + i] = -infinity;
    const Operand x({1, 8, 8, 8, 8}, kind.type, values), w({8, 1, 1, 1, 8}, kind.type, eye),
        bias(Shape{8}, kind.type, Values(8, 0.0));
    for (const double slope : {0.0, 0.5}) {
      const auto y = apply(ops::ConvBiasActivation{{}, slope}, {x.on_device, w.on_device, bias.on_device}).to_vector();
      // 0 times infinity is NaN in every channel but one; NaN alone must stay everywhere, also beside the infinities.
      for (std::size_t i = 0; i < 8; ++i) CHECK(std::isnan(y[i]));
      CHECK(y[3 * 64] == 1);
    }
  }
}

TEST_CASE("gpu: convolutions of nothing") {
  if (no_cudnn("gpu: convolutions of nothing")) return;
  auto p = layer(4, 1, 2, 3);
  p.batch = 0;
  check_conv(p, kinds[0]);
  p = layer(4, 1, 2, 3);
  p.in[1] = 0, p.out = {4, 2, 4}, p.pad_low[1] = 2;  // windows wholly in padding
  check_conv(p, kinds[1]);
}

TEST_CASE("gpu: a convolution of more than 2^31 - 1 elements") {
  if (no_cudnn("gpu: a convolution of more than 2^31 - 1 elements")) return;
  try {
    // Ones: every output is the number of taps inside of the image, times the channels.
    const UseDevice gpu(DeviceKind::cuda);
    const auto x = ones({1, 512, 512, 512, 4}, DType::bfloat16), w = ones({16, 3, 3, 3, 4}, DType::bfloat16);
    const auto y = conv(x, w, {.padding_low = 1, .padding_high = 1});
    for (const std::int64_t d : {0, 1, 255, 256, 257, 511}) {
      const auto line = slice(slice(slice(y, 1, d, d + 1), 2, 7, 8), 3, 9, 10).to_vector();
      for (const auto value : line) CHECK(value == (d == 0 || d == 511 ? 72.0 : 108.0));
    }
    const auto gw = conv_weight(x, y, {3, 3, 3}, {.padding_low = 1, .padding_high = 1}).to_vector();
    double whole = 0;  // of the middle tap: the sum of all outputs of a channel
    for (const double d : {2.0, 3.0})
      for (const double h : {2.0, 3.0})
        for (const double v : {2.0, 3.0}) whole += 4 * d * h * v * (d == 2 ? 2 : 510) * (h == 2 ? 2 : 510) * (v == 2 ? 2 : 510);
    CHECK(gw[13 * 4] == doctest::Approx(whole).epsilon(1e-2));
  } catch (const Error& error) {
    if (std::string(error.what()).find("out of GPU memory") == std::string::npos) throw;
    skip_test("gpu: a convolution of more than 2^31 - 1 elements", "the GPU has too little memory");
  }
}

namespace {

ops::Window window_of(const PoolProblem& p) {
  return {.kernel = p.kernel, .stride = p.stride, .dilation = p.dilation, .low = p.pad_low, .in = p.in, .out = p.out};
}

void check_pool(const PoolProblem& p, const Kind& kind, const Values* image = nullptr) {
  INFO(label(kind), " ", windows(p), " channels ", p.channels);
  const auto window = window_of(p);
  const auto shape = activation(p.batch, p.in, p.channels);
  const Operand x(shape, kind.type, image ? *image : random_values<double>(shape.elements())),
      g(activation(p.batch, p.out, p.channels), kind.type);
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

TEST_CASE("gpu: pools of every kind") {
  if (no_gpu("gpu: pools of every kind")) return;
  for (const auto& kind : kinds) {
    for (int i = 0; i < 80; ++i) check_pool(random_pool(), kind);
    // Ties, NaN and infinities; and windows wholly in padding.
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
    check_pool(p, kind, &image);
    p.pad_low = {4, 1, 1};
    check_pool(p, kind);
  }
}

namespace {

void check_product(const Kind& kind, bool no_terms) {
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
  const Operand a(a_shape, kind.type), b(b_shape, kind.type);
  Values c(static_cast<std::size_t>(p.batch * p.m * p.n));
  reference::matmul(p, a.values.data(), b.values.data(), c.data());
  CHECK(relative_error(apply(ops::Matmul{{p.transpose_a, p.transpose_b}}, {a.on_device, b.on_device}), c) < kind.tolerance);

  p.batch = 1, p.transpose_a = false, p.transpose_b = true;
  const Operand x({p.m, p.k}, kind.type), w({p.n, p.k}, kind.type), bias(Shape{p.n}, kind.type);
  c.resize(static_cast<std::size_t>(p.m * p.n));
  for (const double slope : {1.0, 0.0, 0.2}) {
    reference::matmul(p, x.values.data(), w.values.data(), c.data(), {.bias = bias.values.data(), .slope = slope});
    CHECK(relative_error(apply(ops::Linear{slope}, {x.on_device, w.on_device, bias.on_device}), c) < kind.tolerance);
  }
}

}  // namespace

TEST_CASE("gpu: products of matrices") {
  if (no_cublas("gpu: products of matrices")) return;
  for (const auto& kind : kinds) {
    const Settings settings(kind);
    for (int i = 0; i < 80; ++i) check_product(kind, i % 10 == 0);
  }
}

TEST_CASE("gpu: the comparisons themselves, on the CPU") {
  device = DeviceKind::cpu;
  for (const auto& kind : {kinds[0], kinds[1]}) {
    for (int i = 0; i < 10; ++i) {
      check_conv(random_conv(), kind);
      check_pool(random_pool(), kind);
    }
    check_conv(layer(8, 2, 4, 16), kind);
    for (int i = 0; i < 10; ++i) check_product(kind, i == 0);
  }
  device = DeviceKind::cuda;
}
