// Convolutions by the plain kernels in float64, which have no padding on the right, no layouts and no activations.

#include <algorithm>

#include "comm/distributed/distributed.h"
#include "framework/base/joined.h"
#include "ops/conv/conv.h"
#include "ops/conv/conv_kernels.h"
#include "tests/ops/comparison/comparison_fuzz.h"

namespace mpigrad::testing {
namespace {

using cpu::ConvProblem;

struct WindowCase {
  bool transposed = false, integers = false, bias = false;
  double slope = 1;
  Shape x{}, w{};
  ConvAttributes a{};
  Triple output_padding = 0;
  Extent3 outputs{};
};

Extent3 each(const std::function<std::int64_t(std::size_t)>& f) { return {f(0), f(1), f(2)}; }

// Kernels up to 5, strides that skip inputs, dilation, padding beyond a whole window, groups, inputs of extent 1.
WindowCase draw(Dice& dice) {
  static const std::int64_t channels[] = {1, 2, 3, 4, 5, 8, 16, 17};
  const auto some_channels = [&] { return channels[dice(0, 7)]; };
  for (;;) {
    WindowCase c{.transposed = dice(0, 2) == 0, .integers = dice(0, 1) == 0, .bias = dice(0, 1) == 0};
    const bool flat = dice(0, 4) == 0;
    c.a.groups = dice(0, 2) == 0 ? dice(2, 4) : 1;
    const auto in = c.a.groups * some_channels(), out = c.a.groups * some_channels();
    const auto n = each([&](std::size_t i) {
      if (flat && i == 0) return std::int64_t{1};
      return dice(0, 3) == 0 ? dice(1, 3) : dice(4, c.transposed ? 6 : 9);
    });
    const auto k = each([&](std::size_t i) {
      if (flat && i == 0) return std::int64_t{1};
      return dice(0, 4) == 0 ? dice(4, 5) : dice(1, 3);
    });
    c.a.stride = each([&](std::size_t) { return dice(0, 1) == 0 ? 1 : dice(2, 4); });
    c.a.dilation = each([&](std::size_t) { return dice(0, 2) > 0 ? 1 : dice(2, 3); });
    const auto padding = [&](std::size_t i) {
      const auto reach = (k[i] - 1) * c.a.dilation[i] + 1;
      return dice(0, 9) == 0 ? dice(reach, reach + 2) : dice(0, reach - 1);
    };
    c.a.padding = Padding::sides(each(padding), each(padding));
    c.x = {dice(1, 3), n[0], n[1], n[2], in};
    const auto other = c.transposed ? out / c.a.groups : in / c.a.groups;
    c.w = {c.transposed ? in : out, k[0], k[1], k[2], other};
    if (c.transposed) {
      c.output_padding = each([&](std::size_t i) { return dice(0, c.a.stride[i] - 1); });
      c.outputs = each([&](std::size_t i) {
        return (n[i] - 1) * c.a.stride[i] - c.a.padding.low[i] - c.a.padding.high[i] + c.a.dilation[i] * (k[i] - 1) +
               c.output_padding[i] + 1;
      });
    } else {
      c.slope = dice(0, 1) == 0 ? 1 : dice(0, 1) == 0 ? 0.25 : 0;
      c.outputs = each([&](std::size_t i) {
        return window_outputs(n[i], k[i], c.a.stride[i], c.a.dilation[i], c.a.padding.low[i], c.a.padding.high[i]);
      });
    }
    const auto least = *std::min_element(c.outputs.begin(), c.outputs.end());
    const auto positions = c.x[0] * cpu::volume(c.transposed ? n : c.outputs);
    if (least > 0 && positions * c.w.elements() <= 300000 && c.x[0] * cpu::volume(c.outputs) * out <= 40000) return c;
  }
}

// For the plain kernels a transposed convolution is the adjoint of a convolution whose input is the result.
struct Kernels {
  explicit Kernels(const WindowCase& c) : transposed(c.transposed) {
    const Extent3 n{c.x[1], c.x[2], c.x[3]};
    p = {.batch = c.x[0],
         .in = transposed ? c.outputs : n,
         .out = transposed ? n : c.outputs,
         .kernel = {c.w[1], c.w[2], c.w[3]},
         .stride = c.a.stride,
         .dilation = c.a.dilation,
         .pad_low = c.a.padding.low,
         .in_channels = c.w[4] * c.a.groups,
         .out_channels = c.w[0],
         .groups = c.a.groups};
    inner = cpu::volume(p.in) * p.batch * p.in_channels, outer = cpu::volume(p.out) * p.batch * p.out_channels;
  }
  using Row = std::vector<double>;
  Row forward(const Row& x, const Row& w) const { return transposed ? data(x, w) : sums(x, w); }
  Row backward(const Row& g, const Row& w) const { return transposed ? sums(g, w) : data(g, w); }
  Row weight(const Row& x, const Row& g) const {
    Row result(static_cast<std::size_t>(p.out_channels * cpu::volume(p.kernel) * p.in_channels / p.groups));
    cpu::reference::conv_weight(p, (transposed ? g : x).data(), (transposed ? x : g).data(), result.data());
    return result;
  }

 private:
  Row sums(const Row& x, const Row& w) const {
    Row y(static_cast<std::size_t>(outer));
    cpu::reference::conv_forward(p, x.data(), w.data(), y.data());
    return y;
  }
  Row data(const Row& g, const Row& w) const {
    Row x(static_cast<std::size_t>(inner));
    cpu::reference::conv_data(p, g.data(), w.data(), x.data());
    return x;
  }

  bool transposed;
  ConvProblem p;
  std::int64_t inner = 0, outer = 0;
};

std::vector<double> by_channel(const std::vector<double>& rows, std::size_t channels) {
  std::vector<double> sums(channels, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % channels] += rows[i];
  return sums;
}

std::string text(const WindowCase& c) {
  const auto three = [](const Extent3& e) { return joined(e, ","); };
  return fmt::format(
      "{} of {}, {} by {}, stride {}, dilation {}, padding {} and {}, output padding {}, groups {}, bias {}, slope {}",
      c.transposed ? "conv_transpose" : "conv", c.integers ? "integers" : "reals", c.x, c.w, three(c.a.stride),
      three(c.a.dilation), three(c.a.padding.low), three(c.a.padding.high), three(c.output_padding), c.a.groups, c.bias, c.slope);
}

Truth truth_of(const WindowCase& c, const std::vector<std::vector<double>>& in, std::vector<double> g) {
  const Kernels kernels(c);
  const auto channels = static_cast<std::size_t>(c.transposed ? c.w[4] * c.a.groups : c.w[0]);
  const Shape y_shape{c.x[0], c.outputs[0], c.outputs[1], c.outputs[2], static_cast<std::int64_t>(channels)};
  auto y = kernels.forward(in[0], in[1]), scale = kernels.forward(magnitudes(in[0]), magnitudes(in[1]));
  std::vector<double> inner(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (c.bias) y[i] += in[2][i % channels], scale[i] += std::abs(in[2][i % channels]);
    if (c.slope != 1 && !c.integers && std::abs(y[i]) < 1e-4 * scale[i]) g[i] = 0;
    inner[i] = y[i] > 0 ? g[i] : c.slope * g[i];
    y[i] = leaky(y[i], c.slope);
  }
  const auto size = magnitudes(inner);
  std::vector<std::vector<double>> gradients{kernels.backward(inner, in[1]), kernels.weight(in[0], inner)},
      scales{kernels.backward(size, magnitudes(in[1])), kernels.weight(magnitudes(in[0]), size)};
  std::vector<Shape> shapes{c.x, c.w};
  if (c.bias) {
    gradients.push_back(by_channel(inner, channels)), scales.push_back(by_channel(size, channels));
    shapes.push_back({static_cast<std::int64_t>(channels)});
  }
  // float32 holds every sum of small integers exactly.
  const auto bound = [&](const Shape& shape, const std::vector<double>& values) {
    return c.integers ? zeros(shape, DType::float64) : from_vector(shape, values, DType::float64);
  };
  Truth truth{from_vector(y_shape, y, DType::float64), bound(y_shape, scale), from_vector(y_shape, g, DType::float64), {}, {}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    truth.gradients.push_back(from_vector(shapes[i], gradients[i], DType::float64));
    truth.gradient_scales.push_back(bound(shapes[i], scales[i]));
  }
  return truth;
}

}  // namespace

ComparisonCase window_comparison(std::uint64_t seed) {
  Dice dice(seed);
  const auto c = draw(dice);
  const Philox random{.key = seed, .stream = 11};
  const auto channels = c.transposed ? c.w[4] * c.a.groups : c.w[0];
  std::vector<Shape> shapes{c.x, c.w};
  if (c.bias) shapes.push_back({channels});
  std::vector<std::vector<double>> in;
  ComparisonCase result{text(c), {}, {}, {}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    in.push_back(fuzz_numbers(shapes[i].elements(), random.child(i), c.integers));
    result.inputs.push_back(from_vector(shapes[i], in[i], DType::float64));
  }
  const auto g = fuzz_numbers(c.x[0] * cpu::volume(c.outputs) * channels, random.child(9), c.integers);
  const auto truth = std::make_shared<const Truth>(truth_of(c, in, g));
  result.truth = [truth](const LayoutPtr&) { return *truth; };
  result.run = [c](const Tensors& x) {
    const auto bias = c.bias ? x[2] : Tensor();
    if (!c.transposed) {
      auto attributes = c.a;
      attributes.activation = Activation::leaky_relu(c.slope);
      return conv(x[0], x[1], bias, attributes);
    }
    return conv_transpose(x[0], x[1], bias,
                          {.stride = c.a.stride,
                           .dilation = c.a.dilation,
                           .padding = c.a.padding,
                           .output_padding = c.output_padding,
                           .groups = c.a.groups});
  };
  return result;
}

}  // namespace mpigrad::testing
