#include "comm/spatial/distributed.h"

#include <algorithm>
#include <utility>

#include "comm/spatial/channel_parts.h"
#include "comm/spatial/exchange.h"
#include "comm/spatial/invariant.h"
#include "comm/spatial/local_parts.h"
#include "comm/spatial/window_plan.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace mpigrad {
namespace {

using spatial::WindowedPlan, spatial::windowed_input, spatial::global_spatial, spatial::halo_dimension;

struct Spatial {
  Extent3 kernel, stride, dilation, low, out;
  bool transposed = false;
};

WindowSpec spec(const Spatial& s, std::size_t i) {
  return {.kernel = s.kernel[i], .stride = s.stride[i], .padding_low = s.low[i], .dilation = s.dilation[i]};
}

WindowedPlan windowed_plan(const Tensor& x, const Spatial& s, std::int64_t channels) {
  return spatial::windowed_plan(x, s.out, channels, [&](std::size_t i, const std::vector<std::int64_t>& cuts) {
    const auto w = spec(s, i);
    const auto out = s.transposed ? centred_cuts_transposed(w, s.out[i], cuts) : centred_cuts(w, s.out[i], cuts);
    return std::pair{out, s.transposed ? window_parts_transposed(w, cuts, out) : window_parts(w, cuts, out)};
  });
}

// Pooling of x on a plan: the local op without rules for its outputs.
ops::Window local_window(const Tensor& padded, const WindowedPlan& plan, const PoolAttributes& a) {
  ops::Window window{a.kernel, a.stride, a.dilation, a.padding_low, spatial_extent(padded), {}};
  const auto local = plan.out->box().extents();
  for (std::size_t i = 0; i < 3; ++i) {
    window.out[i] = local[static_cast<int>(i) + 1];
    if (plan.split[i]) window.low[i] = plan.part[i].pad_low;
  }
  return window;
}

Spatial pooling(const Tensor& x, const PoolAttributes& a) {
  require_window("pool", a.kernel, a.stride, a.dilation);
  return {a.kernel, a.stride, a.dilation, a.padding_low, pool_outputs(global_spatial(x), a)};
}

}  // namespace

namespace {

// float32 rounded to a type of 16 bits; else x.
Tensor rounded(const Tensor& x, DType dtype) {
  if (!x || !is_half(dtype) || x.dtype() != DType::float32) return x;
  static constexpr char keys[2] = {};  // their addresses
  auto* tape = Tape::innermost();
  const auto make = [&] { return cast(x, dtype); };
  return tape ? tape->memoised(x.id(), &keys[dtype == DType::bfloat16 ? 0 : 1], make) : make();
}

}  // namespace

Tensor parameter_for(const Tensor& x, const Tensor& w) { return rounded(spatial::replicated_for(x, w), x.dtype()); }

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes, const SplitOutputs& outputs) {
  ConvAttributes a = attributes;
  if (spatial::splits_product(x, w, bias, outputs)) {
    const auto part = [&](const Tensor& x_, const Tensor& w_, const Tensor& bias_, std::int64_t groups, Activation activation) {
      a.groups = groups, a.activation = activation;
      return conv(x_, w_, bias_, a);
    };
    return spatial::product_of_parts("conv", x, w, bias, a.activation, {.groups = a.groups, .outputs = outputs}, part);
  }
  const double slope = std::exchange(a.activation, Activation::none).slope();
  const auto in = global_spatial(x);
  require_kernel_fits("conv", in, spatial_extent(w), a);
  if (!x.layout()) return local::conv_bias_activation(x, parameter_for(x, w), parameter_for(x, bias), slope, a);
  require_window("conv", spatial_extent(w), a.stride, a.dilation);
  Spatial s{spatial_extent(w), a.stride, a.dilation, a.padding_low, {}};
  for (std::size_t i = 0; i < 3; ++i)
    s.out[i] = window_outputs(in[i], s.kernel[i], s.stride[i], s.dilation[i], a.padding_low[i], a.padding_high[i]);
  const auto plan = windowed_plan(x, s, w.dim(0));
  for (std::size_t i = 0; i < 3; ++i)
    if (plan.split[i]) a.padding_low[i] = plan.part[i].pad_low, a.padding_high[i] = plan.part[i].pad_high;
  const HaloRoom room(halo_dimension(plan));
  const auto y = local::conv_bias_activation(windowed_input(x, plan), parameter_for(x, w), parameter_for(x, bias), slope, a);
  return y.with_layout(plan.out);
}

Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTransposeAttributes& attributes,
                      const SplitOutputs& outputs) {
  ConvTransposeAttributes a = attributes;
  if (spatial::splits_product(x, w, bias, outputs)) {
    const auto part = [&](const Tensor& x_, const Tensor& w_, const Tensor& bias_, std::int64_t groups, Activation activation) {
      a.groups = groups, a.activation = activation;
      return conv_transpose(x_, w_, bias_, a);
    };
    const ProductAttributes product{.groups = a.groups, .transposed = true, .outputs = outputs};
    return spatial::product_of_parts("conv_transpose", x, w, bias, a.activation, product, part);
  }
  const double slope = std::exchange(a.activation, Activation::none).slope();
  const auto in = global_spatial(x);
  Tensor y;
  LayoutPtr layout;
  if (!x.layout()) {
    y = local::conv_transpose(x, parameter_for(x, w), a);
  } else {
    require_window("conv_transpose", spatial_extent(w), a.stride, a.dilation);
    Spatial s{spatial_extent(w), a.stride, a.dilation, a.padding_low, {}, true};
    for (std::size_t i = 0; i < 3; ++i) {
      s.out[i] = (in[i] - 1) * s.stride[i] - a.padding_low[i] - a.padding_high[i] + s.dilation[i] * (s.kernel[i] - 1) +
                 a.output_padding[i] + 1;
      require(s.out[i] >= 0, "[conv_transpose] padding leaves nothing in dimension {}: {}", i + 1, x);
    }
    const auto plan = windowed_plan(x, s, w.dim(4) * a.groups);
    const auto window = windowed_input(x, plan);
    const HaloRoom room(halo_dimension(plan));
    const auto local_out = plan.out->box().extents();
    ConvAttributes forward{.stride = a.stride,
                           .dilation = a.dilation,
                           .padding_low = a.padding_low,
                           .padding_high = a.padding_high,
                           .groups = a.groups};
    Extent3 extent{};
    for (std::size_t i = 0; i < 3; ++i) {
      extent[i] = local_out[static_cast<int>(i) + 1];
      if (plan.split[i]) forward.padding_low[i] = plan.part[i].pad_low;
      // The right padding that makes the window of `extent` outputs fit exactly.
      const auto n = spatial_extent(window)[i];
      forward.padding_high[i] =
          (n - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1 - extent[i] - forward.padding_low[i];
      if (n == 0) forward.padding_high[i] = -extent[i] - forward.padding_low[i];
    }
    y = conv_data(window, parameter_for(x, w), extent, forward);
    layout = plan.out;
  }
  if (slope != 1) y = local::bias_activation(y, parameter_for(x, bias), slope);
  else if (bias) y = y + parameter_for(x, bias);
  return layout ? y.with_layout(layout) : y;
}

Tensor avg_pool(const Tensor& x, const PoolAttributes& a, Activation activation) {
  const double slope = activation.slope();
  if (!x.layout()) return local::leaky_avg_pool(x, slope, a);
  const auto plan = windowed_plan(x, pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  const HaloRoom room(halo_dimension(plan));
  const auto window = local_window(padded, plan, a);
  const Tensor y =
      slope == 1 ? mpigrad::apply(ops::AvgPool{window}, {padded}) : mpigrad::apply(ops::LeakyAvgPool{window, slope}, {padded});
  const auto box = plan.out->box();
  return with_divisors(y, global_spatial(x), a, {box.begin[1], box.begin[2], box.begin[3]}, {box.end[1], box.end[2], box.end[3]})
      .with_layout(plan.out);
}

Tensor max_pool(const Tensor& x, const PoolAttributes& a) {
  if (!x.layout()) return local::max_pool(x, a);
  const auto plan = windowed_plan(x, pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  const HaloRoom room(halo_dimension(plan));
  return apply_all(ops::MaxPool{local_window(padded, plan, a)}, {padded})[0].with_layout(plan.out);
}

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  const double slope = activation.slope();
  if (!x.layout()) return local::bias_activation(x, parameter_for(x, bias), slope);
  spatial::require_no_share("bias_activation", x);
  if (spatial::splits_channels(x, {bias})) {
    const auto block = spatial::block_beside("bias_activation", x, bias);
    return spatial::with_channels_of(x, bias_activation(spatial::own_channels(x), block, activation));
  }
  const HaloRoom room(spatial::halo_dimension(*x.layout()));
  return local::bias_activation(x.without_layout(), parameter_for(x, bias), slope).with_layout(x.layout());
}

Tensor global_avg_pool(const Tensor& x) {
  // Sums over ranks round once, too.
  if (is_half(x.dtype())) return cast(global_avg_pool(cast(x, DType::float32)), x.dtype());
  const auto y = mean(x, {1, 2, 3});
  if (!y.layout() || !y.layout()->has(Placement::share)) return y;
  Layout whole = *y.layout();
  for (auto& axis : whole.axes)
    if (axis.placement == Placement::share) axis = {Placement::same, -1, {}};
  return redistribute(y, std::make_shared<Layout>(std::move(whole)));
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, const SplitOutputs& outputs) {
  if (x.layout())
    require(x.rank() == 2 && !x.layout()->has(Placement::share),
            "[linear] needs [N, in] that is not a share; use flatten() or redistribute(): {}", x);
  if (spatial::splits_product(x, w, bias, outputs)) {
    const auto part = [](const Tensor& x_, const Tensor& w_, const Tensor& bias_, std::int64_t, Activation of_part) {
      return linear(x_, w_, bias_, of_part);
    };
    return spatial::product_of_parts("linear", x, w, bias, activation, {.outputs = outputs}, part);
  }
  const auto y = local::linear(x.without_layout(), parameter_for(x, w), parameter_for(x, bias), activation.slope());
  if (!x.layout()) return y;
  Layout layout = *x.layout();
  layout.global[1] = w.dim(0);
  return y.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Tensor flatten(const Tensor& x) {
  require(x.rank() >= 1, "[flatten] needs [N, ...]: {}", x);
  Tensor whole = x;
  if (x.layout()) {
    Layout layout = *x.layout();
    for (auto& axis : layout.axes)
      if (axis.placement == Placement::split && axis.dimension != 0) axis = {Placement::same, -1, {}};
    whole = redistribute(x, std::make_shared<Layout>(std::move(layout)));
  }
  return flatten_from(whole, 1);
}

Tensor detail::replicated(const Tensor& x, const std::vector<int>& axes, DType dtype) {
  const auto local = axes.empty() ? x.without_layout() : replicate(x, grid_of(*x.layout()).along(axes));
  return rounded(local, dtype);
}

}  // namespace mpigrad
