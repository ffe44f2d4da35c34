#include "tests/models/nn/layer_cases.h"

#include "comm/distributed/upsample.h"
#include "comm/halos/periodic.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "tests/support/gradient_check.h"

namespace mpigrad::testing {
namespace {

Extent3 three(Dice& dice, std::int64_t first, std::int64_t last) {
  return {dice(first, last), dice(first, last), dice(first, last)};
}

Shape activations(Dice& dice, std::int64_t channels) { return {dice(1, 3), dice(3, 9), dice(3, 9), dice(3, 9), channels}; }

using Extents = std::array<int, 4>;
std::vector<Extents> grids(int ranks) {
  std::vector<Extents> result;
  for (int n = 1; n <= ranks; ++n)
    for (int d = 1; d <= ranks; ++d)
      for (int h = 1; h <= ranks; ++h)
        for (int w = 1; w <= ranks; ++w)
          if (n * d * h * w == ranks) result.push_back({n, d, h, w});
  return result;
}

}  // namespace

LayerCase random_conv(Dice& dice) {
  for (;;) {
    const std::int64_t groups = dice(1, 2), in = groups * dice(1, 2), out = groups * dice(1, 2);
    const Shape x = activations(dice, in);
    const auto k = three(dice, 1, 3);
    ConvAttributes a{.stride = three(dice, 1, 3),
                     .dilation = three(dice, 1, 2),
                     .padding = Padding::sides(three(dice, 0, 3), three(dice, 0, 3)),
                     .groups = groups};
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i)
      fits = fits && window_outputs(x[static_cast<int>(i) + 1], k[i], a.stride[i], a.dilation[i], a.padding.low[i],
                                    a.padding.high[i]) > 0;
    if (!fits) continue;
    static constexpr Activation some[]{Activation::leaky_relu(0.25), Activation::silu, Activation::softplus};
    if (!dice(0, 1)) a.activation = some[x.elements() % 3];
    const bool bias = dice(0, 1);
    LayerCase layer{"conv", x, {{out, k[0], k[1], k[2], in / groups}}, {}, a.activation == Activation::none && !bias};
    if (bias) layer.parameters.push_back({out});
    layer.run = [=](const Tensors& in_) { return conv(in_[0], in_[1], bias ? in_[2] : Tensor(), a); };
    return layer;
  }
}

LayerCase random_conv_transpose(Dice& dice) {
  for (;;) {
    const std::int64_t groups = dice(1, 2), in = groups * dice(1, 2), out = dice(1, 2);
    const Shape x{dice(1, 2), dice(2, 6), dice(2, 6), dice(2, 6), in};
    const auto k = three(dice, 1, 3);
    ConvTransposeAttributes a{.stride = three(dice, 1, 3),
                              .dilation = three(dice, 1, 2),
                              .padding = Padding::sides(three(dice, 0, 2), three(dice, 0, 2)),
                              .groups = groups};
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i) {
      a.output_padding[i] = dice(0, a.stride[i] - 1);
      fits = fits && (x[static_cast<int>(i) + 1] - 1) * a.stride[i] - a.padding.low[i] - a.padding.high[i] +
                             a.dilation[i] * (k[i] - 1) + a.output_padding[i] >=
                         0;
    }
    if (!fits) continue;
    const bool bias = dice(0, 1);
    LayerCase layer{"conv_transpose", x, {{in, k[0], k[1], k[2], out}}, {}, !bias};
    if (bias) layer.parameters.push_back({out * groups});
    layer.run = [=](const Tensors& in_) { return conv_transpose(in_[0], in_[1], bias ? in_[2] : Tensor(), a); };
    return layer;
  }
}

LayerCase random_pool(Dice& dice, bool maximum) {
  for (;;) {
    PoolAttributes a{.kernel = three(dice, 1, 3),
                     .stride = three(dice, 1, 3),
                     .dilation = three(dice, 1, 2),
                     .ceil_mode = dice(0, 1) == 1,
                     .count_include_pad = dice(0, 1) == 1};
    for (std::size_t i = 0; i < 3; ++i) a.padding.low[i] = dice(0, a.kernel[i] / 2), a.padding.high[i] = dice(0, a.kernel[i] / 2);
    const Shape x = activations(dice, dice(1, 2));
    const auto out = pool_outputs({x[1], x[2], x[3]}, a);
    if (out[0] * out[1] * out[2] == 0) continue;
    LayerCase layer{maximum ? "max_pool" : "avg_pool", x, {}, {}, !maximum};
    layer.run = [=](const Tensors& in) { return maximum ? max_pool(in[0], a) : avg_pool(in[0], a); };
    return layer;
  }
}

LayerCase batch_norm_layer(Dice& dice) {
  const auto channels = dice(1, 3);
  return {"batch_norm", activations(dice, channels), {{channels}, {channels}}, [](const Tensors& in) {
            return batch_norm(in[0], in[1], in[2], {.epsilon = 1e-2}).y;
          }};
}

LayerCase global_avg_pool_layer(Dice& dice) {
  const auto channels = dice(1, 3);
  return {"global_avg_pool and linear", activations(dice, channels), {{4, channels}, {4}}, [](const Tensors& in) {
            return linear(tanh(global_avg_pool(in[0])), in[1], in[2], Activation::leaky_relu(0.5));
          }};
}

LayerCase flatten_layer(Dice& dice) {
  const Shape x = activations(dice, dice(1, 2));
  return {
      "flatten and linear", x, {{3, x.elements(1, 5)}}, [](const Tensors& in) { return linear(flatten(in[0]), in[1]); }, true};
}

LayerCase random_adaptive_pool(Dice& dice, bool maximum) {
  const Shape x = activations(dice, dice(1, 2));
  const auto out = three(dice, 1, 10);
  LayerCase layer{maximum ? "adaptive_max_pool" : "adaptive_avg_pool", x, {}, {}, !maximum};
  layer.run = [=](const Tensors& in) { return maximum ? adaptive_max_pool(in[0], out) : adaptive_avg_pool(in[0], out); };
  return layer;
}

LayerCase row_norm_layer(Dice& dice) {
  const auto channels = dice(2, 4);
  const Shape x = activations(dice, channels);
  if (dice(0, 1) == 0)
    return {"layer_norm", x, {{channels}, {channels}}, [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 0.1); }};
  return {"rms_norm", x, {{channels}}, [](const Tensors& in) { return rms_norm(in[0], in[1], 0.1); }};
}

LayerCase statistics_layer(Dice& dice) {
  const Shape x = activations(dice, 2);
  const auto kind = dice(0, 3);
  const bool keep = dice(0, 1) == 1;
  std::vector<int> axes;
  for (int d = 0; d < 4; ++d)
    if (dice(0, 1) == 1) axes.push_back(d);
  if (axes.empty()) axes.push_back(static_cast<int>(dice(0, 3)));
  return {"statistics", x, {}, [=](const Tensors& in) {
            if (kind == 0) return var(in[0], axes, 0.25, keep);
            if (kind == 1) return sqrt(var(in[0], axes, 0, keep) + 1);
            if (kind == 2) return vector_norm(in[0] + 2, axes, axes.size() == 1 ? 3 : 2, keep);
            return cosine_similarity(in[0] + 2, square(in[0]) + 1, axes[0]);
          }};
}

LayerCase roll_layer(Dice& dice) {
  const Shape x = activations(dice, dice(1, 2));
  const std::vector<std::int64_t> shifts{dice(-20, 20), dice(-20, 20), dice(-20, 20)};
  const std::vector<int> axes{static_cast<int>(dice(0, 4)), static_cast<int>(dice(0, 3)), static_cast<int>(dice(-4, -2))};
  return {"roll", x, {}, [=](const Tensors& in) { return roll(in[0], shifts, axes); }, true};
}

LayerCase network_layer(Dice& dice) {
  return {"network",
          {dice(1, 3), dice(7, 10), dice(7, 10), dice(7, 10), 2},
          {{3, 3, 3, 3, 2}, {3}, {3}, {3}, {2, 2, 2, 2, 3}, {4, 2}, {4}},
          [](const Tensors& in) {
            auto y = conv(in[0], in[1], in[2], {.stride = 2, .padding = 1, .activation = Activation::leaky_relu(0.1)});
            y = batch_norm(y, in[3], in[4], {.epsilon = 1e-2}).y;
            y = avg_pool(y, {.kernel = 2, .stride = 1});
            y = conv(y, in[5], {.padding = Padding::sides(1, 0), .activation = Activation::leaky_relu(0.3)});
            return linear(global_avg_pool(y), in[6], in[7]);
          }};
}

Tensors parameters_of(const LayerCase& layer, std::uint64_t seed, DType dtype) {
  Tensors result;
  for (const auto& shape : layer.parameters) result.push_back(global_tensor(shape, ++seed, {}, dtype));
  return result;
}

LayoutPtr random_layout(const Communicator& comm, Dice& dice, const Shape& global) {
  const auto all = grids(comm.size());
  const auto e = all[static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(all.size()) - 1))];
  const auto grid = make_grid(comm, {.sample = e[0], .depth = e[1], .height = e[2], .width = e[3]});
  std::vector<int> dimensions{0, 1, 2, 3};
  if (dice(0, 3) == 0) dimensions[static_cast<std::size_t>(dice(0, 3))] = -1;
  auto layout = split_layout(grid, global, dimensions);
  return dice(0, 2) == 0 ? layout : with_random_cuts(layout, dice);
}

void check_layer_adjoints(const Communicator& comm, std::uint64_t repeats) {
  const std::vector<std::function<LayerCase(Dice&)>> makers = {random_conv,
                                                               random_conv_transpose,
                                                               [](Dice& dice) { return random_pool(dice, false); },
                                                               batch_norm_layer,
                                                               global_avg_pool_layer,
                                                               flatten_layer,
                                                               row_norm_layer,
                                                               roll_layer,
                                                               [](Dice& dice) { return random_adaptive_pool(dice, false); }};
  for (std::size_t m = 0; m < makers.size(); ++m)
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      const auto seed = static_cast<std::uint64_t>(comm.size()) * 100 + m * 10 + repeat;
      Dice dice(seed);
      const auto layer = makers[m](dice);
      const auto layout = random_layout(comm, dice, layer.input);
      const auto parameters = parameters_of(layer, seed);
      const auto x = global_tensor(layer.input, seed, layout);
      if (layer.linear) {
        const auto in_x = [&](const Tensors& in) {
          Tensors all = in;
          all.insert(all.end(), parameters.begin(), parameters.end());
          return Tensors{layer.run(all)};
        };
        require_adjoint(layer.name, in_x, {x}, comm, {.seed = seed});
      }
      // In x and the parameters together; leaky steps are differentiated only away from their kink.
      if (layer.name == "conv") continue;
      Tensors all{x};
      all.insert(all.end(), parameters.begin(), parameters.end());
      AdjointOptions options{.inputs = {Across::varying}, .linear = false, .seed = seed};
      for (std::size_t i = 0; i < parameters.size(); ++i) options.inputs.push_back(Across::same);
      if (layer.name == "global_avg_pool and linear") continue;
      require_adjoint(
          layer.name + " with parameters", [&](const Tensors& in) { return Tensors{layer.run(in)}; }, all, comm, options);
    }
}

}  // namespace mpigrad::testing
