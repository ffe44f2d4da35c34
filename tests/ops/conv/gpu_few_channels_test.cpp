// Convolutions of images with few channels, 16 or 32, by our own kernels (ops/conv/few_channels.h, sixteen_channels.h,
// thirty_two_channels.h) on a GPU, compared with the plain kernels.

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "ops/conv/few_channels.h"
#include "ops/conv/sixteen_channels.h"
#include "ops/conv/thirty_two_channels.h"
#include "ops/conv/weights_tf32.h"
#include "tests/ops/plain_comparison.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

const Kind halves[] = {kinds[3], kinds[4]}, narrow[] = {kinds[1], kinds[3], kinds[4]};

// Three taps along each axis, padding and cropping on either side.
ConvProblem random_few_channels(std::int64_t in_channels, std::int64_t out_channels) {
  ConvProblem p{.batch = pick(1, 2), .kernel = {3, 3, 3}, .in_channels = in_channels, .out_channels = out_channels};
  const std::int64_t largest[] = {5, 9, 20}, times = emulated() ? 1 : 4;
  for (std::size_t a = 0; a < 3; ++a) {
    p.in[a] = pick(1, 3) == 1 ? pick(1, 4) : pick(1, largest[a] * times);
    p.pad_low[a] = pick(-1, 3);
    p.out[a] = std::max<std::int64_t>(1, p.in[a] + p.pad_low[a] + pick(-1, 3) - 2);
  }
  return p;
}

struct Form {
  const char* name;
  std::vector<Kind> kinds;
  int problems;
  bool (*taken)(const ConvProblem&);
  std::vector<std::pair<std::int64_t, std::int64_t>> channels;  // in, out
};
const Form forms[] = {
    {"one to four",
     {std::begin(narrow), std::end(narrow)},
     24,
     cuda::has_few_channels,
     {{1, 48}, {2, 16}, {3, 16}, {4, 48}, {1, 16}, {2, 16}, {3, 48}, {4, 16}, {1, 16}, {2, 48}, {3, 16}, {4, 16}}},
    {"sixteen", {std::begin(halves), std::end(halves)}, 16, cuda::has_sixteen_channels, {{16, 32}, {16, 16}}},
    {"thirty-two",
     {std::begin(halves), emulated() ? std::begin(halves) + 1 : std::end(halves)},  // the emulator computes both in the same way
     24,
     [](const ConvProblem& p) {
       return cuda::has_thirty_two_channels(p) &&
              cuda::has_thirty_two_outputs(p, p.in_channels, p.out_channels) == (p.out_channels == 32);
     },
     {{32, 32}, {64, 32}, {32, 64}}},
    {"gradients of weights in TF32", {kinds[2]}, 12, cuda::has_weights_tf32, {{4, 16}, {16, 32}, {4, 48}}},
    {"exact gradients of weights", {kinds[1]}, 12, cuda::has_weights_float32, {{8, 16}, {16, 32}, {32, 16}, {20, 48}}}};

}  // namespace

TEST_CASE("gpu: few channels: values and adjoints of every form, with any edges") {
  if (no_cudnn("gpu: few channels: values and adjoints of every form, with any edges")) return;
  REQUIRE(kinds[2].tf32);
  for (const auto& form : forms)
    for (const auto& kind : form.kinds) {
      INFO(std::string(form.name));
      const Settings settings(kind);
      for (int i = 0; i < cases(form.problems); ++i) {
        const auto [in, out] = form.channels[static_cast<std::size_t>(i) % form.channels.size()];
        const auto p = random_few_channels(in, out);
        CHECK(form.taken(p));
        check_conv(p, kind);
      }
    }
  for (const auto& kind : narrow) {
    const Settings settings(kind);
    check_conv({.batch = 1,
                .in = {5, 9, 33},
                .out = {5, 9, 33},
                .kernel = {3, 3, 3},
                .pad_low = {1, 1, 1},
                .in_channels = 4,
                .out_channels = 16},
               kind);
  }
}

TEST_CASE("gpu: few channels: what is not of this form") {
  const ConvProblem p{.batch = 1,
                      .in = {8, 8, 8},
                      .out = {8, 8, 8},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 4,
                      .out_channels = 16};
  CHECK(cuda::has_few_channels(p));
  const auto without = [&](auto change) {
    auto other = p;
    change(other);
    return !cuda::has_few_channels(other);
  };
  CHECK(without([](ConvProblem& q) { q.in_channels = 5; }));
  CHECK(without([](ConvProblem& q) { q.out_channels = 24; }));
  CHECK(without([](ConvProblem& q) { q.kernel[1] = 2; }));
  CHECK(without([](ConvProblem& q) { q.stride[2] = 2; }));
  CHECK(without([](ConvProblem& q) { q.dilation[0] = 2; }));
  CHECK(without([](ConvProblem& q) { q.groups = 2; }));
  const auto sixteen = [&](auto change) {
    auto other = p;
    other.in_channels = 16;
    change(other);
    return cuda::has_sixteen_channels(other);
  };
  CHECK(sixteen([](ConvProblem&) {}));
  CHECK(!sixteen([](ConvProblem& q) { q.in_channels = 32; }));
  CHECK(!sixteen([](ConvProblem& q) { q.out_channels = 48; }));
  CHECK(!sixteen([](ConvProblem& q) { q.kernel[2] = 1; }));
  CHECK(!sixteen([](ConvProblem& q) { q.stride[0] = 2; }));
  CHECK(!sixteen([](ConvProblem& q) { q.dilation[1] = 2; }));
  for (const std::int64_t in : {5, 6, 7, 18, 36}) {
    auto other = p;
    other.in_channels = in;
    CHECK_FALSE(cuda::has_weights_float32(other));
  }
}

TEST_CASE("gpu: few channels: NaN is in the outputs that read it, and in gradients of weights of its channel") {
  const char* test = "gpu: few channels: NaN is in the outputs that read it, and in gradients of weights of its channel";
  if (no_cudnn(test)) return;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& kind : halves) {
    if (emulated() && kind.type == DType::float16) continue;  // the emulator computes its products in the same way
    for (const std::int64_t c : {1, 4, 16})
      for (const auto& at : {Extent3{3, 7, 15}, Extent3{5, 9, 17}}) {  // at the edges of boxes, and in a corner of the image
        INFO(label(kind), " ", c, " channels, NaN at ", at[0]);
        const Settings settings(kind);
        const ConvProblem p{.batch = 1,
                            .in = {6, 10, 18},
                            .out = {6, 10, 18},
                            .kernel = {3, 3, 3},
                            .pad_low = {1, 1, 1},
                            .in_channels = c,
                            .out_channels = 16};
        const auto a = attributes_of(p);
        Values values = random_values<double>(volume(p.in) * c);
        values[static_cast<std::size_t>(((at[0] * p.in[1] + at[1]) * p.in[2] + at[2]) * c + c - 1)] = nan;
        const Operand x(activation(1, p.in, c), kind.type, values), w({16, 3, 3, 3, c}, kind.type),
            g(activation(1, p.out, 16), kind.type);
        const auto y = apply(ops::Conv{a}, {x.on_device, w.on_device}).to_vector();
        std::size_t i = 0;
        bool right = true;
        for (std::int64_t d = 0; d < p.out[0]; ++d)
          for (std::int64_t h = 0; h < p.out[1]; ++h)
            for (std::int64_t v = 0; v < p.out[2]; ++v)
              for (int k = 0; k < 16; ++k, ++i) {
                const bool reads = std::abs(d - at[0]) <= 1 && std::abs(h - at[1]) <= 1 && std::abs(v - at[2]) <= 1;
                right = right && std::isnan(y[i]) == reads;
              }
        CHECK(right);
        // The taps that read it: outputs of its channel may be NaN, outputs of other channels may not.
        const auto gw = apply(ops::ConvWeight{a, p.kernel}, {x.on_device, g.on_device}).to_vector();
        right = true;
        for (i = 0; i < gw.size(); ++i) {
          const auto channel = static_cast<std::int64_t>(i) % c, tap = static_cast<std::int64_t>(i) / c % 27;
          const Extent3 of{tap / 9, tap / 3 % 3, tap % 3};
          bool read = channel == c - 1;
          for (std::size_t axis = 0; axis < 3; ++axis) read = read && at[axis] + 1 - of[axis] < p.out[axis];
          right = right && (read ? std::isnan(gw[i]) : channel == c - 1 || !std::isnan(gw[i]));
        }
        CHECK(right);
      }
  }
}

TEST_CASE("gpu: few channels: nobody else computes them") {
  const char* test = "gpu: few channels: nobody else computes them";
  if (no_cudnn(test)) return;
  if (!emulated()) return skip_test(test, "needs an emulated cuDNN, which does what it is asked for");
  setenv("MPIGRAD_EMULATED_CUDNN", "version-91400,no-channels-last", 1);  // this version then has no kernel for 16 bits
  const Settings settings(halves[0]);
  for (const std::int64_t c : {4, 16}) {
    const auto p = layer(5, 1, c, 16);
    const auto a = attributes_of(p);
    const Operand x(activation(1, p.in, c), DType::bfloat16), w({16, 3, 3, 3, c}, DType::bfloat16),
        g(activation(1, p.out, 16), DType::bfloat16);
    CHECK_NOTHROW(apply(ops::Conv{a}, {x.on_device, w.on_device}));
    CHECK_NOTHROW(apply(ops::ConvWeight{a, p.kernel}, {x.on_device, g.on_device}));
    if (c == 16) CHECK_NOTHROW(apply(ops::ConvData{a, p.in}, {g.on_device, w.on_device}));
    else CHECK_THROWS_AS(apply(ops::ConvData{a, p.in}, {g.on_device, w.on_device}), Error);
  }
  unsetenv("MPIGRAD_EMULATED_CUDNN");
}

TEST_CASE("gpu: few channels: gradients of weights from fewer blocks than boxes") {
  if (no_gpu("gpu: few channels: gradients of weights from fewer blocks than boxes")) return;
  for (const std::int64_t c : {4, 16, 32}) {
    const std::int64_t outputs = std::max<std::int64_t>(c, 16);
    const auto p = layer(9, 1, c, outputs);
    const Operand x(activation(1, p.in, c), DType::bfloat16), g(activation(1, p.out, outputs), DType::bfloat16);
    Values wanted(static_cast<std::size_t>(outputs * 27 * c));
    reference::conv_weight(p, x.values.data(), g.values.data(), wanted.data());
    const auto bytes = c == 32 ? cuda::thirty_two_channels_scratch(p, true)
                               : std::max(cuda::few_channels_scratch(p), cuda::sixteen_channels_scratch(p, true));
    const auto gw = to(zeros({outputs * 27 * c}, DType::bfloat16), DeviceKind::cuda);
    const auto scratch = to(zeros({bytes / 4}), DeviceKind::cuda);
    const auto *from = reinterpret_cast<const BFloat16*>(x.on_device.raw()),
               *by = reinterpret_cast<const BFloat16*>(g.on_device.raw());
    auto* sums = reinterpret_cast<float*>(scratch.raw());
    auto* result = reinterpret_cast<BFloat16*>(gw.raw());
    for (const std::int64_t parts : {1, 2, 5}) {
      INFO(c, " channels, ", parts, " blocks");
      if (c == 4) cuda::few_channels_weight(p, from, by, sums, result, cuda::compute_stream(), parts);
      else if (c == 32) cuda::thirty_two_channels_weight(p, from, by, sums, result, cuda::compute_stream(), 2 * parts);
      else cuda::sixteen_channels_weight(p, from, by, sums, result, cuda::compute_stream(), parts);
      CHECK(relative_error(gw, wanted) < halves[0].tolerance);
    }
  }
}

TEST_CASE("gpu: few channels: the same bits in every run") {
  if (no_cudnn("gpu: few channels: the same bits in every run")) return;
  const std::pair<std::int64_t, Kind> of[] = {{4, halves[0]}, {16, halves[0]}, {32, halves[0]}, {2, kinds[1]}, {16, kinds[1]}};
  for (const auto& [c, kind] : of) {
    const Settings settings(kind);
    const std::int64_t outputs = std::max<std::int64_t>(c, 16);
    const auto p = layer(emulated() ? 9 : 100, 1, c, outputs);  // more boxes than blocks on a GPU
    const Operand x(activation(1, p.in, c), kind.type), g(activation(1, p.out, outputs), kind.type);
    const auto gradient = [&] {
      return apply(ops::ConvWeight{attributes_of(p), p.kernel}, {x.on_device, g.on_device}).to_vector();
    };
    const auto first = gradient();
    for (int run = 0; run < 2; ++run) CHECK(gradient() == first);
  }
}
