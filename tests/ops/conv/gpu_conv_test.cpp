// Convolutions on a GPU beyond their values: choice and reuse of cuDNN's kernels, versions that compute wrongly, NaN, empty
// tensors, and more elements than one call may have.

#include <cstdlib>
#include <limits>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/warning.h"
#include "framework/cuda/cuda.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/ops/plain_comparison.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Settings of the emulated cuDNN (tests/emulation/vendor); a real cuDNN ignores them.
class Emulated {
 public:
  explicit Emulated(const char* words) { setenv("MPIGRAD_EMULATED_CUDNN", words, 1); }
  ~Emulated() { unsetenv("MPIGRAD_EMULATED_CUDNN"); }
};

bool no_emulation(const char* test) {
  if (emulated()) return false;
  skip_test(test, "needs an emulated cuDNN, which does what it is asked for");
  return true;
}

Kind kind_of(DType type, bool tf32 = false) {
  for (const auto& kind : kinds)
    if (kind.type == type && kind.tf32 == tf32) return kind;
  fail("[test] there is no such kind");
}

}  // namespace

TEST_CASE("gpu: convolutions timed once, and not again") {
  if (no_cudnn("gpu: convolutions timed once, and not again")) return;
  for (const auto& kind : kinds) {
    const Settings settings(kind, true);
    for (int i = 0; i < cases(6); ++i) check_conv(random_conv(), kind);
    check_conv(layer(emulated() ? 6 : 16, 1, 4, 16), kind);
  }
  // Measured kernels are not measured again.
  const Settings settings(kinds[1], true);
  const auto p = layer(emulated() ? 5 : 24, 1, 3, 7);
  const auto before = gpu_tuning();
  check_conv(p, kinds[1]);
  const auto first = gpu_tuning();
  CHECK(first.problems > before.problems);
  CHECK(first.kernels - before.kernels >= first.problems - before.problems);
  CHECK(first.seconds > before.seconds);
  check_conv(p, kinds[1]);  // the choices have been made
  CHECK(gpu_tuning().problems == first.problems);
  CHECK(gpu_tuning().remembered == first.remembered);
  // Other choices must be made from the contents of the file. The limit on the time is not part of the key.
  auto changed = gpu_settings();
  changed.tuning_seconds = 3;
  set_gpu_settings(changed);
  check_conv(p, kinds[1]);
  CHECK(gpu_tuning().problems == first.problems);
  CHECK(gpu_tuning().remembered - first.remembered == first.problems - before.problems);
}

TEST_CASE("gpu: kernels that need a compiler or more memory than there is are passed over") {
  const char* test = "gpu: kernels that need a compiler or more memory than there is are passed over";
  if (no_cudnn(test) || no_emulation(test)) return;
  // Without a compiler such an engine is refused when it is built. Only a LeakyReLU needs one.
  for (const bool timed : {false, true}) {
    const Emulated cudnn("no-compiler");
    const auto kind = kind_of(DType::bfloat16);
    const Settings settings(kind, timed);
    check_conv(layer(5, 1, 8, 16), kind);
  }
  const Emulated cudnn("large-workspace");  // 3 GiB, more than the free memory of the GPU
  for (const auto& kind : kinds) {
    INFO(label(kind));
    const Settings settings(kind);
    auto generous = gpu_settings();
    generous.workspace = std::int64_t{1} << 40;
    set_gpu_settings(generous);
    check_conv(layer(7, 1, 4, 8), kind);
  }
}

TEST_CASE("gpu: an activation that is tried does not hide what an earlier kernel has found wrong") {
  const char* test = "gpu: an activation that is tried does not hide what an earlier kernel has found wrong";
  if (no_cudnn(test)) return;
  const auto& kind = kinds[1];
  for (const bool timed : {false, true}) {
    const Settings settings(kind, timed);
    const auto p = layer(timed ? 9 : 10, 1, 4, 8);  // shapes not used elsewhere
    const Operand x(activation(1, p.in, 4), kind.type), w({8, 3, 3, 3, 4}, kind.type), bias(Shape{8}, kind.type);
    const auto index = to(from_vector({1}, {99.0}, DType::int64), DeviceKind::cuda);
    const auto both = [&] {
      const auto outside = take(bias.on_device, index);
      apply(ops::ConvBiasActivation{attributes_of(p), 0.0}, {x.on_device, w.on_device, bias.on_device}).to_vector();
    };
    CHECK_THROWS_WITH_AS(both(), doctest::Contains("[take]"), Error);
  }
}

TEST_CASE("gpu: what a version of cuDNN computes wrongly is computed otherwise, and said") {
  const char* test = "gpu: what a version of cuDNN computes wrongly is computed otherwise, and said";
  if (no_cudnn(test) || no_emulation(test)) return;
  detail::take_warnings();
  const auto tf32 = kind_of(DType::float32, true);
  const Settings settings(tf32);
  auto p = layer(6, 1, 8, 16);
  {
    const Emulated cudnn("version-91002");
    auto exact = tf32;
    exact.tolerance = 1e-5;
    check_conv(p, exact);
    const auto warnings = detail::take_warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("cuDNN 9.10.2 computes three-dimensional convolutions in TF32 wrongly (https://") !=
          std::string::npos);
    CHECK(warnings[0].find("float32 is used instead") != std::string::npos);
    check_conv(p, kind_of(DType::bfloat16));
    CHECK(detail::take_warnings().empty());  // 16-bit tensors are used in their own memory layout
  }
  {  // Without channels last there is no engine left that is known to be correct.
    const Emulated cudnn("version-91400,no-channels-last");
    p = layer(7, 1, 8, 16);
    const Operand x(activation(1, p.in, 8), DType::bfloat16), w({16, 3, 3, 3, 8}, DType::bfloat16);
    CHECK_THROWS_WITH_AS(apply(ops::Conv{attributes_of(p)}, {x.on_device, w.on_device}), doctest::Contains("9.14.0 computes"),
                         Error);
    setenv("MPIGRAD_CUDNN_DEFECTS", "ignore", 1);
    CHECK_NOTHROW(apply(ops::Conv{attributes_of(p)}, {x.on_device, w.on_device}));
    unsetenv("MPIGRAD_CUDNN_DEFECTS");
  }
}

TEST_CASE("gpu: convolutions of the sizes of CosmoFlow's at 128^3 are those of cuDNN's simplest kernel") {
  const char* test = "gpu: convolutions of the sizes of CosmoFlow's at 128^3 are those of cuDNN's simplest kernel";
  if (no_cudnn(test)) return;
  const std::int64_t extent = emulated() ? 6 : 128;
  const UseDevice on(DeviceKind::cuda);
  for (const auto& kind : kinds) {
    if (kind.type == DType::float64 || (kind.type == DType::float32 && !kind.tf32)) continue;
    for (const auto& channels : {std::pair{4, 16}, {16, 32}}) {
      const int c = channels.first, k = channels.second;
      INFO(label(kind), " ", c, " -> ", k, " channels");
      const auto p = layer(extent, 1, c, k);
      const auto a = attributes_of(p);
      const auto numbers = [&](const Shape& shape, std::uint64_t key) {
        return cast(random_normal(shape, {.key = key}), kind.type);
      };
      const auto x = numbers(activation(1, p.in, c), 1), g = numbers(activation(1, p.out, k), 2), w = numbers({k, 3, 3, 3, c}, 3);
      const auto compute = [&](DType type) {
        const auto xt = cast(x, type), gt = cast(g, type), wt = cast(w, type);
        return std::vector{apply(ops::Conv{a}, {xt, wt}), apply(ops::ConvData{a, p.in}, {gt, wt}),
                           apply(ops::ConvWeight{a, p.kernel}, {xt, gt})};
      };
      std::vector<Tensor> found, wanted;
      {
        const Settings settings(kind);
        found = compute(kind.type);
      }
      {
        const Settings settings(kinds[1]);
        auto simplest = gpu_settings();
        simplest.reference = true;
        set_gpu_settings(simplest);
        wanted = compute(DType::float32);
      }
      for (std::size_t i = 0; i < 3; ++i) {
        const auto error = max(abs(cast(found[i], DType::float32) - wanted[i])).item() / max(abs(wanted[i])).item();
        INFO("pass ", i);
        CHECK(error < kind.tolerance);
      }
    }
  }
}

TEST_CASE("gpu: a convolution keeps NaN and infinities through its activation") {
  if (no_cudnn("gpu: a convolution keeps NaN and infinities through its activation")) return;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool timed : {false, true})
    for (const auto& kind : kinds) {
      INFO(label(kind), timed ? ", timed" : "");
      const Settings settings(kind, timed);
      // A kernel of one tap, with as many channels as tensor cores need: outputs are copies of inputs.
      Values eye(64, 0), values(static_cast<std::size_t>(8 * 8 * 8 * 8), 1.0);
      for (std::size_t i = 0; i < 8; ++i) eye[i * 9] = 1;
      for (std::size_t i = 0; i < 8; ++i) values[i] = nan, values[64 + i] = infinity, values[128 + i] = -infinity;
      // The last channel's bias is infinite, and so are its sums.
      Values biases(8, 0.0);
      biases[7] = infinity;
      const Operand x({1, 8, 8, 8, 8}, kind.type, values), w({8, 1, 1, 1, 8}, kind.type, eye), bias(Shape{8}, kind.type, biases);
      for (const double slope : {0.0, 0.5}) {
        const auto y = apply(ops::ConvBiasActivation{{}, slope}, {x.on_device, w.on_device, bias.on_device}).to_vector();
        // 0 times infinity is NaN in every channel but one; NaN must remain everywhere, also next to the infinities.
        for (std::size_t i = 0; i < 8; ++i) CHECK(std::isnan(y[i]));
        CHECK(y[3 * 64] == 1);
        CHECK(y[3 * 64 + 7] == infinity);
      }
    }
  const char* lost = "gpu: a convolution keeps NaN where an activation of cuDNN loses it";
  if (!emulated()) return count_skipped(lost, "needs an emulated cuDNN, which does what it is asked for");
  const Emulated cudnn("lost-nan");
  for (const bool timed : {false, true})
    for (const auto& kind : kinds) {
      INFO(label(kind), timed ? ", timed" : "");
      const Settings settings(kind, timed);
      // A shape not used elsewhere: earlier choices are remembered.
      Values values(static_cast<std::size_t>(3 * 5 * 11 * 8), 1.0);
      values[0] = nan;
      const Operand x({1, 3, 5, 11, 8}, kind.type, values), w({8, 1, 1, 1, 8}, kind.type), bias(Shape{8}, kind.type);
      for (const double slope : {0.0, 0.5}) {
        const auto y = apply(ops::ConvBiasActivation{{}, slope}, {x.on_device, w.on_device, bias.on_device}).to_vector();
        for (std::size_t i = 0; i < 8; ++i) CHECK(std::isnan(y[i]));
        CHECK(!std::isnan(y[8]));
      }
    }
}

TEST_CASE("gpu: a convolution of more than 2^31 - 1 elements") {
  if (no_cudnn("gpu: a convolution of more than 2^31 - 1 elements")) return;
  try {
    // Ones: every output is the number of taps inside the image, times the channels.
    const UseDevice gpu(DeviceKind::cuda);
    const auto x = ones({1, 512, 512, 512, 4}, DType::bfloat16), w = ones({16, 3, 3, 3, 4}, DType::bfloat16);
    const auto y = local::conv(x, w, {.padding = 1});
    for (const std::int64_t d : {0, 1, 255, 256, 257, 511}) {
      const auto line = slice(slice(slice(y, 1, d, d + 1), 2, 7, 8), 3, 9, 10).to_vector();
      for (const auto value : line) CHECK(value == (d == 0 || d == 511 ? 72.0 : 108.0));
    }
    const auto gw = conv_weight(x, y, {3, 3, 3}, {.padding = 1}).to_vector();
    double whole = 0;  // gradient of the middle tap: the sum of all outputs of a channel
    for (const double d : {2.0, 3.0})
      for (const double h : {2.0, 3.0})
        for (const double v : {2.0, 3.0}) whole += 4 * d * h * v * (d == 2 ? 2 : 510) * (h == 2 ? 2 : 510) * (v == 2 ? 2 : 510);
    CHECK(gw[13 * 4] == doctest::Approx(whole).epsilon(1e-2));
  } catch (const Error& error) {
    if (std::string(error.what()).find("out of GPU memory") == std::string::npos) throw;
    skip_test("gpu: a convolution of more than 2^31 - 1 elements", "the GPU has too little memory");
  }
}
