#include "comm/distributed/distributed.h"

#include <algorithm>
#include <utility>

#include "comm/distributed/channel_parts.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/local_parts.h"
#include "comm/halos/exchange.h"
#include "comm/halos/ghosts.h"
#include "comm/halos/overlapped.h"
#include "comm/halos/window_plan.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

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

WindowedPlan windowed_plan(const Layout& layout, const Spatial& s, std::int64_t channels) {
  return spatial::windowed_plan(layout, s.out, channels, [&](std::size_t i, const std::vector<std::int64_t>& cuts) {
    const auto w = spec(s, i);
    const auto out = s.transposed ? centred_cuts_transposed(w, s.out[i], cuts) : centred_cuts(w, s.out[i], cuts);
    return std::pair{out, s.transposed ? window_parts_transposed(w, cuts, out) : window_parts(w, cuts, out)};
  });
}

// Pooling of x on a plan: the local op without rules for its outputs.
ops::Window local_window(const Tensor& padded, const Layout& out, const std::array<bool, 3>& split,
                         const std::array<WindowPart, 3>& part, const PoolAttributes& a) {
  ops::Window window{a.kernel, a.stride, a.dilation, a.padding_low, spatial_extent(padded), {}};
  const auto local = out.box().extents();
  for (std::size_t i = 0; i < 3; ++i) {
    window.out[i] = local[static_cast<int>(i) + 1];
    if (split[i]) window.low[i] = part[i].pad_low;
  }
  return window;
}
ops::Window local_window(const Tensor& padded, const WindowedPlan& plan, const PoolAttributes& a) {
  return local_window(padded, *plan.out, plan.split, plan.part, a);
}

Spatial pooling(const Extent3& in, const PoolAttributes& a) {
  require_window("pool", a.kernel, a.stride, a.dilation);
  return {a.kernel, a.stride, a.dilation, a.padding_low, pool_outputs(in, a)};
}
Spatial pooling(const Tensor& x, const PoolAttributes& a) { return pooling(global_spatial(x), a); }

Spatial convolution(const Tensor& x, const Shape& weight, const ConvAttributes& a) {
  const auto in = global_spatial(x);
  Spatial s{{weight[1], weight[2], weight[3]}, a.stride, a.dilation, a.padding_low, {}};
  require_window("conv", s.kernel, a.stride, a.dilation);
  for (std::size_t i = 0; i < 3; ++i)
    s.out[i] = window_outputs(in[i], s.kernel[i], s.stride[i], s.dilation[i], a.padding_low[i], a.padding_high[i]);
  return s;
}

Tensor averaged(const Tensor& padded, const ops::Window& window, Activation activation, const LayoutPtr& out, const Extent3& in,
                const PoolAttributes& a) {
  const HaloRoom room(halo_dimension(*out));
  const bool leaky = activation.is_fused() && !activation.is_none();
  const Tensor y = leaky ? mpigrad::apply(ops::LeakyAvgPool{window, activation.fused()}, {padded})
                         : mpigrad::apply(ops::AvgPool{window}, {activate(padded, activation)});
  const auto box = out->box();
  return with_divisors(y, in, a, {box.begin[1], box.begin[2], box.begin[3]}, {box.end[1], box.end[2], box.end[3]})
      .with_layout(out);
}

Tensor maximum(const Tensor& padded, const ops::Window& window, const LayoutPtr& out) {
  const HaloRoom room(halo_dimension(*out));
  return apply_all(ops::MaxPool{window}, {padded})[0].with_layout(out);
}

}  // namespace

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes, const SplitOutputs& outputs) {
  ConvAttributes a = attributes;
  if (spatial::splits_product(x, w, bias, outputs)) {
    const auto part = [&](const Tensor& x_, const Tensor& w_, const Tensor& bias_, std::int64_t groups, Activation activation) {
      a.groups = groups, a.activation = activation;
      return conv(x_, w_, bias_, a);
    };
    return spatial::product_of_parts("conv", x, w, bias, a.activation, {.groups = a.groups, .outputs = outputs}, part);
  }
  const auto activation = std::exchange(a.activation, Activation::none);
  const auto in = global_spatial(x);
  const auto weight = parameter_for(x, w);
  require_kernel_fits("conv", in, spatial_extent(weight), a);
  if (!x.layout()) return local::conv_bias_activation(x, weight, parameter_for(x, bias), activation, a);
  const auto plan = windowed_plan(*x.layout(), convolution(x, weight.shape(), a), weight.dim(0));
  return spatial::windowed_conv(x, plan, weight, parameter_for(x, bias), activation, a, halo_dimension(plan))
      .with_layout(plan.out);
}

namespace {

// Elements that all ranks of a plan receive.
std::int64_t received_by_all(const WindowedPlan& plan) {
  std::int64_t places = 0;
  for (std::size_t r = 0; plan.moves && r < plan.boxes->have.size(); ++r) {
    const auto &have = plan.boxes->have[r], &need = plan.boxes->need[r];
    places += need.elements() - intersection(have, need).elements();
  }
  return places;
}

// Beside bytes that cross a network at 10 GB/s, products at 1 TFLOP/s for each rank.
constexpr double flops_for_a_byte = 100;

}  // namespace

ConvForPool conv_for_pool(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes,
                          const PoolAttributes& pool) {
  const auto separately = [&] { return ConvForPool{conv(x, w, bias, attributes), pool, nullptr, {}, {}}; };
  if (!x.layout() || w.rank() != 5 || attributes.activation != Activation::none || spatial::splits_product(x, w, bias, {}))
    return separately();
  const auto shape = global_shape(w);
  require_kernel_fits("conv", global_spatial(x), {shape[1], shape[2], shape[3]}, attributes);
  const auto s = convolution(x, shape, attributes);
  const auto of_pool = pooling(s.out, pool);
  const auto first = windowed_plan(*x.layout(), s, shape[0]);
  if (!first.moves) return separately();
  const auto second = windowed_plan(*first.out, of_pool, shape[0]);

  // Each rank's windows of the pool, and those of the places that they read.
  std::array<std::vector<WindowPart>, 3> pooled;
  double redundant = 1, own = 1;  // places that ranks make, in the split dimensions
  const auto both =
      spatial::windowed_plan(*x.layout(), of_pool.out, shape[0], [&](std::size_t i, const std::vector<std::int64_t>& cuts) {
        const auto made = centred_cuts(spec(s, i), s.out[i], cuts);
        const auto out = centred_cuts(spec(of_pool, i), of_pool.out[i], made);
        pooled[i] = window_parts(spec(of_pool, i), made, out);
        std::vector<WindowPart> parts;
        std::int64_t places = 0;
        for (const auto& part : pooled[i]) {
          parts.push_back(window_part(spec(s, i), cuts.back(), part.begin, part.end));
          places += part.end - part.begin;
        }
        redundant *= static_cast<double>(places), own *= static_cast<double>(s.out[i]);
        return std::pair{out, parts};
      });
  const auto local = first.out->box().extents();
  double others = static_cast<double>(local[0]);  // places in the other dimensions
  for (std::size_t i = 0; i < 3; ++i)
    if (!first.split[i]) others *= static_cast<double>(s.out[i]);
  const auto item = static_cast<double>(size_of(x.dtype()));
  const double saved = item * static_cast<double>(received_by_all(first) + received_by_all(second) - received_by_all(both));
  const double again = 2 * std::max(0.0, redundant - own) * others * static_cast<double>(shape.elements());
  if (saved <= 0 || again > flops_for_a_byte * saved) return separately();

  ConvForPool result{
      .y = spatial::windowed_conv(x, both, parameter_for(x, w), parameter_for(x, bias), Activation::none, attributes, -1),
      .pool = pool,
      .out = both.out,
      .window = {},
      .extent = s.out};
  std::array<WindowPart, 3> part{};
  const auto coordinates = x.layout()->grid->coordinates(x.layout()->grid->rank);
  for (const int axis : both.axes) {
    const auto a = static_cast<std::size_t>(axis);
    const auto i = static_cast<std::size_t>(x.layout()->axes[a].dimension - 1);
    part[i] = pooled[i][static_cast<std::size_t>(coordinates[a])];
  }
  result.window = local_window(result.y, *both.out, both.split, part, pool);
  return result;
}

Tensor avg_pool(const ConvForPool& x, Activation activation) {
  if (!x.out) return avg_pool(x.y, x.pool, activation);
  return averaged(x.y, x.window, activation, x.out, x.extent, x.pool);
}

Tensor max_pool(const ConvForPool& x) { return x.out ? maximum(x.y, x.window, x.out) : max_pool(x.y, x.pool); }

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
  const auto activation = std::exchange(a.activation, Activation::none);
  const auto in = global_spatial(x);
  const auto weight = parameter_for(x, w);
  Tensor y;
  LayoutPtr layout;
  if (!x.layout()) {
    y = local::conv_transpose(x, weight, a);
  } else {
    require_window("conv_transpose", spatial_extent(weight), a.stride, a.dilation);
    Spatial s{spatial_extent(weight), a.stride, a.dilation, a.padding_low, {}, true};
    for (std::size_t i = 0; i < 3; ++i) {
      s.out[i] = (in[i] - 1) * s.stride[i] - a.padding_low[i] - a.padding_high[i] + s.dilation[i] * (s.kernel[i] - 1) +
                 a.output_padding[i] + 1;
      require(s.out[i] >= 0, "[conv_transpose] padding leaves nothing in dimension {}: {}", i + 1, x);
    }
    const auto plan = windowed_plan(*x.layout(), s, weight.dim(4) * a.groups);
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
    y = conv_data(window, weight, extent, forward);
    layout = plan.out;
  }
  y = local::bias_activation(y, parameter_for(x, bias), activation);
  return layout ? y.with_layout(layout) : y;
}

Tensor avg_pool(const Tensor& x, const PoolAttributes& a, Activation activation) {
  if (!x.layout()) return local::activated_avg_pool(x, activation, a);
  const auto plan = windowed_plan(*x.layout(), pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  return averaged(padded, local_window(padded, plan, a), activation, plan.out, global_spatial(x), a);
}

Tensor max_pool(const Tensor& x, const PoolAttributes& a) {
  if (!x.layout()) return local::max_pool(x, a);
  const auto plan = windowed_plan(*x.layout(), pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  return maximum(padded, local_window(padded, plan, a), plan.out);
}

Tensor global_avg_pool(const Tensor& x) {
  // Sums over ranks round once, too.
  if (is_half(x.dtype())) return cast(global_avg_pool(cast(x, DType::float32)), x.dtype());
  const auto y = mean(x, {1, 2, 3});
  if (!y.layout() || !y.layout()->has(Placement::partial)) return y;
  Layout whole = *y.layout();
  for (auto& axis : whole.axes)
    if (axis.placement == Placement::partial) axis = {Placement::replicated, -1, {}};
  return redistribute(y, std::make_shared<Layout>(std::move(whole)));
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, const SplitOutputs& outputs) {
  if (x.layout())
    require(x.rank() == 2 && !x.layout()->has(Placement::partial),
            "[linear] needs [N, in] that is not a partial sum; use flatten() or redistribute(): {}", x);
  if (spatial::splits_product(x, w, bias, outputs)) {
    const auto part = [](const Tensor& x_, const Tensor& w_, const Tensor& bias_, std::int64_t, Activation of_part) {
      return linear(x_, w_, bias_, of_part);
    };
    return spatial::product_of_parts("linear", x, w, bias, activation, {.outputs = outputs}, part);
  }
  const auto weight = parameter_for(x, w);
  const auto y = local::linear(x.without_layout(), weight, parameter_for(x, bias), activation);
  if (!x.layout()) return y;
  Layout layout = *x.layout();
  layout.global[1] = weight.dim(0);
  return y.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Tensor flatten(const Tensor& x) {
  require(x.rank() >= 1, "[flatten] needs [N, ...]: {}", x);
  Tensor whole = x;
  if (x.layout()) {
    Layout layout = *x.layout();
    for (auto& axis : layout.axes)
      if (axis.placement == Placement::split && axis.dimension != 0) axis = {Placement::replicated, -1, {}};
    whole = redistribute(x, std::make_shared<Layout>(std::move(layout)));
  }
  return flatten_from(whole, 1);
}

Tensor detail::replicated(const Tensor& x, const std::vector<int>& axes, DType dtype) {
  const auto local = axes.empty() ? x.without_layout() : replicate(x, grid_of(*x.layout()).along(axes));
  return spatial::rounded(local, dtype);
}

}  // namespace mpigrad
