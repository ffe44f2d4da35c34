// Convolutions of float32 and, if the processor has instructions for it, of bfloat16: usual ones, and cases that libraries
// compute wrongly, with strides longer than windows, kernels longer than inputs, small and large widths, any padding. Operands
// are small integers, of which float32 holds every sum, so every result is known to the bit. Operands, results, scratchpads and
// the libraries' own weights lie between zones of NaN that nothing may write.
//
// MPIGRAD_ONEDNN_DEFECTS=ignore build/tests/unit -tc='exact convolutions*' shows what a version of oneDNN computes wrongly.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/backends/implementation.h"
#include "ops/backends/onednn/onednn_defects.h"
#include "ops/conv/conv_bfloat16.h"
#include "ops/kernel/thread_buffer.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/all_tests.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Elements between two zones of BufferGuard's pattern; the elements are set to NaN.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n) : size_(static_cast<std::size_t>(n)), all_(size_ + 2 * zone) {
    std::memset(static_cast<void*>(all_.data()), BufferGuard::pattern, all_.size() * sizeof(T));
  }
  explicit Guarded(const std::vector<float>& values) : Guarded(static_cast<std::int64_t>(values.size())) {
    std::ranges::transform(values, data(), [](float v) { return T(v); });
  }
  T* data() { return all_.data() + zone; }
  // True if the elements and the zones have the same bits.
  bool equals(const Guarded& other) const {
    return size_ == other.size_ && std::memcmp(all_.data(), other.all_.data(), all_.size() * sizeof(T)) == 0;
  }

 private:
  static constexpr std::size_t zone = 1024;
  std::size_t size_;
  std::vector<T> all_;
};

// The three convolutions of a problem of integers, with the results of the plain kernels.
struct ExactConv {
  ConvProblem p;
  std::vector<float> x, w, g, bias, y, gx, gw;
  double slope = 1;

  ExactConv(const ConvProblem& problem, std::mt19937_64& random) : p(problem) {
    const Sizes n = sizes(p);
    for (auto [values, size] : {std::pair(&x, n.x), {&w, n.w}, {&g, n.y}, {&bias, p.out_channels}}) {
      values->resize(static_cast<std::size_t>(size));
      for (float& v : *values) v = static_cast<float>(static_cast<int>(random() >> 33) % 5 - 2);
    }
    if (random() % 2 == 0) slope = 0.25;
    y = unset<float>(n.y), gx = unset<float>(n.x), gw = unset<float>(n.w);
    reference::conv_forward(p, x.data(), w.data(), y.data(), {.bias = bias.data(), .fused = {slope}});
    reference::conv_data(p, g.data(), w.data(), gx.data());
    reference::conv_weight(p, x.data(), g.data(), gw.data());
  }

  // Checks the results in T with weights in W. Returns true for each computed pass: bfloat16 leaves some passes to float32.
  template <class T, class W = T>
  std::array<bool, 3> check() const {
    Guarded<T> x_(x), g_(g), bias_(bias), y_(sizes(p).y), gx_(sizes(p).x);
    Guarded<W> w_(w), gw_(sizes(p).w);
    const Epilogue epilogue{.bias = bias_.data(), .fused = {slope}};
    std::array<bool, 3> computed{true, true, true};
    if constexpr (std::is_same_v<T, float>) {
      conv_forward(p, x_.data(), w_.data(), y_.data(), epilogue);
      conv_data(p, g_.data(), w_.data(), gx_.data());
      conv_weight(p, x_.data(), g_.data(), gw_.data());
    } else {
      computed = {native::conv_forward(p, x_.data(), w_.data(), y_.data(), epilogue),
                  native::conv_data(p, g_.data(), w_.data(), gx_.data()),
                  native::conv_weight(p, x_.data(), g_.data(), gw_.data())};
    }
    // A pass that leaves the problem to float32 must not write.
    const auto is_right = []<class E>(bool is_computed, const Guarded<E>& got, const std::vector<float>& expected) {
      return got.equals(is_computed ? Guarded<E>(expected) : Guarded<E>(static_cast<std::int64_t>(expected.size())));
    };
    CHECK(is_right(computed[0], y_, y));
    CHECK(is_right(computed[1], gx_, gx));
    CHECK(is_right(computed[2], gw_, gw));
    CHECK((is_right(true, x_, x) && is_right(true, w_, w) && is_right(true, g_, g) && is_right(true, bias_, bias)));
    return computed;
  }
};

// Checks bfloat16 too; returns which of the three passes it computed.
std::array<bool, 3> check_exactly(const ConvProblem& p, std::uint64_t seed) {
  INFO("problem ", seed, ": ", text(p));
  std::mt19937_64 random(seed);
  const ExactConv exact(p, random);
  exact.check<float>();
  const auto computed = exact.check<BFloat16>();
  CHECK((exact.check<BFloat16, float>() == computed));
  return computed;
}

ConvProblem random_problem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() >> 33) % (high - low + 1);
  };
  static constexpr std::int64_t channels[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 32, 48, 64};
  ConvProblem p{.batch = draw(1, 3), .in_channels = channels[draw(0, 12)], .out_channels = channels[draw(0, 12)]};
  if (draw(0, 5) == 0) p.groups = draw(2, 4), p.in_channels = p.groups * draw(1, 8), p.out_channels = p.groups * draw(1, 8);
  // Every other problem is typical of networks: odd kernels, small strides, no dilation.
  const bool usual = seed % 2 == 0, strided = draw(0, 1) == 0, dilated = !usual && draw(0, 3) == 0, wide = draw(0, 7) == 0;
  for (std::size_t a = 0; a < 3; ++a) {
    p.kernel[a] = usual ? 2 * (draw(0, 3) == 0 ? draw(0, 3) : draw(0, 1)) + 1 : draw(0, 2) == 0 ? draw(1, 7) : draw(1, 3);
    p.stride[a] = strided ? draw(1, usual ? (p.kernel[a] + 1) / 2 : 5) : 1;
    p.dilation[a] = dilated ? draw(1, 3) : 1;
    p.in[a] = draw(1, usual ? 9 : draw(0, 3) == 0 ? 4 : 13) + (usual ? p.kernel[a] - 1 : 0);
    if (wide && a == 2) p.in[a] += draw(10, 60);
    const std::int64_t extent = window_extent(p, a);
    p.pad_low[a] = draw(0, 2) == 0 ? extent / 2 : draw(0, 1) == 0 ? 0 : draw(0, extent - 1);
    std::int64_t high = draw(0, 2) == 0 ? extent / 2 : draw(0, 1) == 0 ? 0 : draw(0, extent - 1);
    if (!usual && draw(0, 5) == 0) high = -draw(0, 3);
    p.out[a] = std::max<std::int64_t>(0, p.in[a] + p.pad_low[a] + high - extent) / p.stride[a] + 1;
  }
  // Plain loops take about one nanosecond per product.
  const auto products = [&] { return p.batch * volume(p.out) * volume(p.kernel) * p.out_channels * (p.in_channels / p.groups); };
  while (products() > 2'000'000 && p.batch > 1) --p.batch;
  while (products() > 2'000'000 && p.groups == 1 && p.out_channels + p.in_channels > 8)
    (p.in_channels > p.out_channels ? p.in_channels : p.out_channels) /= 2;
  return p;
}

// One axis of a problem that failed: extent, kernel, padding before and after, stride.
struct Axis {
  std::int64_t in, kernel, low, high, stride;
};

ConvProblem problem(std::int64_t batch, const std::array<Axis, 3>& axes, std::int64_t in_channels, std::int64_t out_channels,
                    std::int64_t groups = 1, const Extent3& dilation = {1, 1, 1}) {
  ConvProblem p{.batch = batch, .dilation = dilation, .in_channels = in_channels, .out_channels = out_channels, .groups = groups};
  for (std::size_t a = 0; a < 3; ++a) {
    const auto& [in, kernel, low, high, stride] = axes[a];
    p.in[a] = in, p.kernel[a] = kernel, p.pad_low[a] = low, p.stride[a] = stride;
    p.out[a] = (in + low + high - window_extent(p, a)) / stride + 1;
  }
  return p;
}

// Problems of bfloat16 that oneDNN 2.5 to 3.13 computes wrongly.
std::vector<ConvProblem> failed_problems() {
  std::vector<ConvProblem> found{problem(3, {{{10, 1, 0, 0, 2}, {9, 1, 0, 0, 3}, {13, 3, 2, 2, 2}}}, 48, 16),
                                 problem(3, {{{13, 2, 0, -3, 4}, {11, 2, 0, -4, 5}, {12, 1, 0, 0, 1}}}, 64, 64),
                                 problem(3, {{{4, 3, 0, 0, 1}, {17, 7, 0, 0, 2}, {8, 5, 2, 3, 4}}}, 48, 16),
                                 problem(3, {{{12, 1, 0, 0, 1}, {2, 1, 0, 0, 1}, {129, 1, 0, 0, 1}}}, 48, 32),
                                 problem(1, {{{12, 2, 0, 2, 1}, {5, 2, 0, 0, 1}, {16, 3, 5, 6, 1}}}, 64, 4, 1, {3, 2, 3}),
                                 problem(2, {{{15, 3, 0, 0, 3}, {5, 3, 1, 0, 3}, {122, 2, 0, 0, 2}}}, 48, 4),
                                 problem(1, {{{9, 4, 2, -1, 2}, {1, 1, 0, 0, 3}, {36, 3, 0, 1, 1}}}, 12, 3),
                                 problem(3, {{{5, 1, 0, 0, 1}, {12, 1, 0, 0, 1}, {65, 1, 0, 0, 1}}}, 24, 1),
                                 problem(1, {{{3, 2, 0, 0, 1}, {24, 7, 4, 5, 1}, {124, 1, 0, 0, 1}}}, 12, 12, 12, {2, 2, 1}),
                                 problem(1, {{{17, 3, 0, 0, 1}, {15, 1, 0, 0, 1}, {95, 2, 0, 1, 1}}}, 32, 5)};
  for (const Axis& width : {Axis{1, 4, 3, 3, 2}, Axis{3, 5, 4, 4, 4}, Axis{2, 5, 4, 4, 4}, Axis{3, 3, 2, 2, 4},
                            Axis{1, 3, 2, 2, 2}, Axis{1, 5, 4, 4, 2}, Axis{3, 6, 3, 5, 4}})
    found.push_back(problem(3, {{{9, 3, 1, 1, 1}, {8, 3, 1, 1, 1}, width}}, 16, 16));
  return found;
}

// Windows that neither overlap nor leave gaps (ops/backends/patches/patches.h), and some that almost do.
std::vector<ConvProblem> patch_problems() {
  const auto axis = [](std::int64_t outputs, std::int64_t kernel) { return Axis{outputs * kernel, kernel, 0, 0, kernel}; };
  std::vector<ConvProblem> found{
      problem(2, {{axis(6, 2), axis(12, 2), axis(20, 2)}}, 8, 8),  problem(1, {{axis(4, 2), axis(4, 2), axis(4, 2)}}, 64, 48),
      problem(3, {{axis(2, 1), axis(7, 3), axis(5, 2)}}, 5, 17),   problem(1, {{axis(4, 2), axis(9, 1), axis(40, 1)}}, 16, 3),
      problem(70, {{axis(1, 2), axis(1, 3), axis(1, 2)}}, 8, 8),   problem(1, {{axis(2, 2), axis(3, 2), axis(300, 1)}}, 3, 5),
      problem(3, {{axis(9, 1), axis(30, 1), axis(20, 1)}}, 16, 5), problem(1, {{axis(5, 1), axis(5, 1), axis(5, 1)}}, 1, 1)};
  for (const Axis& width : {Axis{13, 2, 0, -1, 2}, Axis{11, 2, 1, 0, 2}, Axis{12, 2, 0, 0, 1}, Axis{12, 1, 0, 0, 2}})
    found.push_back(problem(2, {{axis(4, 2), axis(4, 2), width}}, 16, 16));
  return found;
}

}  // namespace

TEST_CASE("exact convolutions: problems that oneDNN computed wrongly, and random ones, in all passes") {
  std::array<int, 3> in_bfloat16{};
  const int damaged = BufferGuard::damaged;
  // Runs on a thread of its own, whose buffers are checked when it ends.
  std::async(std::launch::async, [&] {
    const BufferGuard guard;
    std::uint64_t seed = 0;
    const auto check = [&](const ConvProblem& p) {
      const auto computed = check_exactly(p, seed++);
      // Patches (ops/backends/patches/) compute in float32, on any processor.
      for (std::size_t pass = 0; pass < 3; ++pass)
        in_bfloat16[pass] += computed[pass] && !native_implementation_of(static_cast<Pass>(pass), p).empty();
      return computed;
    };
    // Weight gradients of 13 planes are summed in parts of at most 12 planes; they use bfloat16 if 6 planes do.
    const auto in_parts = check(problem(1, {{{13, 3, 1, 1, 1}, {74, 3, 1, 1, 1}, {72, 3, 1, 1, 1}}}, 4, 3));
    CHECK(in_parts[2] == check(problem(1, {{{6, 3, 1, 1, 1}, {74, 3, 1, 1, 1}, {72, 3, 1, 1, 1}}}, 4, 3))[2]);
    for (const auto& p : failed_problems()) check(p);
    for (const auto& p : patch_problems()) check(p);
    for (int i = 0; i < (all_tests() ? 4000 : 1000); ++i) check(random_problem(seed));
  }).get();
  CHECK(BufferGuard::damaged.load() == damaged);
  INFO("by instructions for bfloat16: ", in_bfloat16[0], " forward, ", in_bfloat16[1], " data gradients, ", in_bfloat16[2],
       " weight gradients");
  if (std::ranges::max(in_bfloat16) == 0)
    count_skipped("exact convolutions by instructions for bfloat16", "the processor or oneDNN has none");
  else CHECK(std::min(in_bfloat16[0], in_bfloat16[1]) >= (all_tests() ? 400 : 100));
}

// Tests the rule itself, on any processor.
TEST_CASE("which convolutions of bfloat16 are given to oneDNN") {
  const Axis same{9, 3, 1, 1, 1};
  const auto right = [](const ConvProblem& p, int version = 206) { return onednn::right_in_bfloat16(version, Pass::weight, p); };
  const ConvProblem volume = problem(2, {{same, same, same}}, 16, 32);
  CHECK(right(volume));
  CHECK(!right(volume, 207));
  CHECK(onednn::right_in_bfloat16(313, Pass::forward, volume));
  CHECK(right(problem(2, {{same, same, {9, 3, 1, 1, 2}}}, 1, 32)));
  CHECK(right(problem(2, {{same, same, {9, 7, 3, 3, 2}}}, 16, 32)));
  CHECK(right(problem(2, {{{1, 1, 0, 0, 1}, same, {3, 3, 0, 0, 1}}}, 16, 32)));
  for (const Axis& wrong :
       {Axis{9, 4, 2, 1, 1}, Axis{9, 3, 1, 1, 3}, Axis{9, 3, 1, -1, 1}, Axis{2, 3, 1, 0, 1}, Axis{3, 3, 1, 1, 1}})
    for (std::size_t a = 0; a < 3; ++a) {
      std::array<Axis, 3> axes{same, same, same};
      axes[a] = wrong;
      CHECK(!right(problem(2, axes, 16, 32)));
    }
  CHECK(!right(problem(2, {{{8, 7, 6, 1, 4}, same, same}}, 16, 32)));
  CHECK(!right(problem(2, {{same, same, same}}, 16, 32, 2)));
  CHECK(!right(problem(2, {{same, same, same}}, 16, 32, 1, {1, 2, 1})));
  const Axis point{9, 1, 0, 0, 1};
  CHECK(!right(problem(2, {{point, point, point}}, 16, 32)));
}
