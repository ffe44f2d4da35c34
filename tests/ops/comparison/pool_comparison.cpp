// Pools by definition: a loop over the taps of every window.

#include <array>
#include <limits>

#include "comm/distributed/distributed.h"
#include "framework/base/joined.h"
#include "tests/ops/comparison/comparison_fuzz.h"

namespace mpigrad::testing {
namespace {

enum class Kind : std::uint8_t { average, leaky_average, maximum };

struct PoolCase {
  Kind kind{};
  bool integers = false;
  double slope = 1;
  Shape x{};
  PoolAttributes a{};
  Extent3 outputs{};
};

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// The number of windows that fit; in ceil mode one more that begins before the right padding.
std::int64_t outputs_of(std::int64_t n, const PoolAttributes& a, std::size_t i) {
  const auto room = n + a.padding.low[i] + a.padding.high[i] - a.dilation[i] * (a.kernel[i] - 1) - 1;
  const auto whole = std::max<std::int64_t>(0, floor_divide(room, a.stride[i]) + 1);
  if (!a.ceil_mode) return whole;
  const auto more = std::max<std::int64_t>(0, -floor_divide(-room, a.stride[i]) + 1);
  return more > whole && (more - 1) * a.stride[i] < n + a.padding.low[i] ? more : whole;
}

PoolCase draw(Dice& dice) {
  for (;;) {
    PoolCase c{.kind = static_cast<Kind>(dice(0, 2)), .integers = dice(0, 1) == 0};
    const bool flat = dice(0, 4) == 0;
    if (c.kind == Kind::leaky_average) c.slope = dice(0, 1) == 0 ? 0.25 : 0;
    Extent3 n{}, k{}, stride{}, dilation{}, low{}, high{};
    for (std::size_t i = 0; i < 3; ++i) {
      const bool one = flat && i == 0;
      n[i] = one ? 1 : dice(0, 3) == 0 ? dice(1, 3) : dice(4, 10);
      k[i] = one ? 1 : dice(1, 4);
      stride[i] = dice(1, 4);
      dilation[i] = dice(0, 2) > 0 ? 1 : dice(2, 3);
      // Up to a window that lies completely in padding.
      const auto most = dice(0, 5) == 0 ? (k[i] - 1) * dilation[i] + 1 : k[i] / 2;
      low[i] = dice(0, most), high[i] = dice(0, most);
    }
    c.a = {.kernel = k,
           .stride = stride,
           .dilation = dilation,
           .padding = Padding::sides(low, high),
           .ceil_mode = dice(0, 1) == 0,
           .count_include_pad = dice(0, 1) == 0};
    static const std::int64_t channels[] = {1, 2, 3, 8, 16, 17};
    c.x = {dice(1, 3), n[0], n[1], n[2], channels[dice(0, 5)]};
    for (std::size_t i = 0; i < 3; ++i) c.outputs[i] = outputs_of(n[i], c.a, i);
    if (c.outputs[0] * c.outputs[1] * c.outputs[2] > 0) return c;
  }
}

std::string text(const PoolCase& c) {
  const auto three = [](const Extent3& e) { return joined(e, ","); };
  static const char* const names[] = {"avg_pool", "leaky_avg_pool", "max_pool"};
  return fmt::format("{} of {}, {}, kernel {}, stride {}, dilation {}, padding {} and {}, ceil {}, counts padding {}, slope {}",
                     names[static_cast<int>(c.kind)], c.integers ? "integers" : "reals", c.x, three(c.a.kernel),
                     three(c.a.stride), three(c.a.dilation), three(c.a.padding.low), three(c.a.padding.high), c.a.ceil_mode,
                     c.a.count_include_pad, c.slope);
}

// f(output, inputs of the window in the order of taps, divisor), for every sample and channel.
template <class F>
void each_window(const PoolCase& c, F f) {
  const auto channels = c.x[4];
  std::int64_t output = 0;
  std::vector<std::size_t> taps;
  const Extent3& out = c.outputs;
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t d = 0; d < out[0]; ++d)
      for (std::int64_t h = 0; h < out[1]; ++h)
        for (std::int64_t w = 0; w < out[2]; ++w)
          for (std::int64_t channel = 0; channel < channels; ++channel, ++output) {
            taps.clear();
            std::int64_t counted = 0;
            const Extent3 o{d, h, w};
            for (std::int64_t t = 0; t < c.a.kernel[0] * c.a.kernel[1] * c.a.kernel[2]; ++t) {
              const Extent3 tap{t / (c.a.kernel[1] * c.a.kernel[2]), t / c.a.kernel[2] % c.a.kernel[1], t % c.a.kernel[2]};
              bool inside = true, padded = true;
              Extent3 at{};
              for (std::size_t i = 0; i < 3; ++i) {
                const auto extent = c.x[static_cast<int>(i) + 1];
                at[i] = o[i] * c.a.stride[i] - c.a.padding.low[i] + tap[i] * c.a.dilation[i];
                inside = inside && at[i] >= 0 && at[i] < extent;
                padded = padded && at[i] < extent + c.a.padding.high[i];
              }
              counted += c.a.count_include_pad ? padded : inside;
              if (inside)
                taps.push_back(
                    static_cast<std::size_t>((((n * c.x[1] + at[0]) * c.x[2] + at[1]) * c.x[3] + at[2]) * channels + channel));
            }
            f(static_cast<std::size_t>(output), taps, static_cast<double>(std::max<std::int64_t>(counted, 1)));
          }
}

Truth truth_of(const PoolCase& c, const std::vector<double>& x, const std::vector<double>& g) {
  std::vector<double> y(g.size()), y_scale(g.size()), gx(x.size(), 0.0), gx_scale(x.size(), 0.0);
  each_window(c, [&](std::size_t o, const std::vector<std::size_t>& taps, double divisor) {
    if (c.kind == Kind::maximum) {
      y[o] = -std::numeric_limits<double>::infinity();
      std::size_t winner = taps.size();
      for (std::size_t t = 0; t < taps.size(); ++t)
        if (winner == taps.size() || x[taps[t]] > x[taps[winner]]) winner = t;
      if (winner == taps.size()) return;
      y[o] = x[taps[winner]];
      gx[taps[winner]] += g[o];
      if (!c.integers) gx_scale[taps[winner]] += std::abs(g[o]);
      return;
    }
    for (const auto tap : taps) {
      y[o] += leaky(x[tap], c.slope) / divisor;
      y_scale[o] += std::abs(x[tap]) / divisor;
      gx[tap] += (x[tap] > 0 ? 1 : c.slope) * g[o] / divisor;
      gx_scale[tap] += std::abs(g[o]) / divisor;
    }
  });
  const Shape out{c.x[0], c.outputs[0], c.outputs[1], c.outputs[2], c.x[4]};
  const auto whole = [](const Shape& shape, const std::vector<double>& values) {
    return from_vector(shape, values, DType::float64);
  };
  return {whole(out, y), whole(out, y_scale), whole(out, g), {whole(c.x, gx)}, {whole(c.x, gx_scale)}};
}

}  // namespace

ComparisonCase pool_comparison(std::uint64_t seed) {
  Dice dice(seed);
  const auto c = draw(dice);
  const Philox random{.key = seed, .stream = 12};
  const auto x = fuzz_numbers(c.x.elements(), random.child(0), c.integers);
  const auto g = fuzz_numbers(c.x[0] * c.outputs[0] * c.outputs[1] * c.outputs[2] * c.x[4], random.child(1), c.integers);
  const auto truth = std::make_shared<const Truth>(truth_of(c, x, g));
  return {text(c),
          {from_vector(c.x, x, DType::float64)},
          [c](const Tensors& in) {
            if (c.kind == Kind::maximum) return max_pool(in[0], c.a);
            if (c.kind == Kind::average) return avg_pool(in[0], c.a);
            return avg_pool(in[0], c.a, Activation::leaky_relu(c.slope));
          },
          [truth](const LayoutPtr&) { return *truth; }};
}

}  // namespace mpigrad::testing
