#include "comm/distributed/distributed.h"

#include <algorithm>
#include <utility>

#include "comm/distributed/channel_parts.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/local_parts.h"
#include "comm/halos/ghosts.h"
#include "comm/halos/overlapped.h"
#include "comm/halos/padding.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using spatial::windowed_plan, spatial::windowed_input, spatial::global_spatial, spatial::halo_dimension;

// This rank's pooling of a plan: the local op, whose outputs are given by the plan.
ops::Window local_window(const Tensor& padded, const spatial::WindowedPlan& plan, const PoolAttributes& a) {
  return spatial::local_window(spatial_extent(padded), *plan.out, plan.split, plan.part, a);
}
spatial::VolumeWindow pooling(const Tensor& x, const PoolAttributes& a) { return spatial::pooling(global_spatial(x), a); }

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

Tensor conv(const Tensor& x, const Tensor& w, const ConvAttributes& attributes, const SplitOutputs& outputs) {
  return conv(x, w, Tensor(), attributes, outputs);
}
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes, const SplitOutputs& outputs) {
  auto a = attributes;
  const Tensor padded = spatial::with_copies(x, a.padding);
  return spatial::run_conv(spatial::plan_conv(padded, w, bias, a, outputs), padded, w, bias);
}

Tensor spatial::avg_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool, Activation activation) {
  if (!plan.pool) return mpigrad::avg_pool(y, pool, activation);
  return averaged(y, plan.pool->window, activation, plan.pool->out, plan.pool->in, pool);
}

Tensor spatial::max_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool) {
  return plan.pool ? maximum(y, plan.pool->window, plan.pool->out) : mpigrad::max_pool(y, pool);
}

Tensor conv_transpose(const Tensor& x, const Tensor& w, const ConvTransposeAttributes& attributes, const SplitOutputs& outputs) {
  return conv_transpose(x, w, Tensor(), attributes, outputs);
}
namespace {

// The transposed convolution without the ends that copy elements, then the adjoint of that padding, then bias and activation. The
// result is split as with zeros.
Tensor copied_back(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTransposeAttributes& a,
                   const SplitOutputs& outputs) {
  auto whole = a;
  whole.padding = without_copies(a.padding), whole.activation = Activation::none;
  const auto copies = copies_of(a.padding);
  const Tensor y = conv_transpose(x, w, whole, outputs);
  std::shared_ptr<Layout> layout;
  if (y.layout()) {
    layout = std::make_shared<Layout>(*y.layout());
    for (std::size_t i = 0; i < 3; ++i) {
      const int d = static_cast<int>(i) + 1, axis = layout->axis_of(d);
      auto& n = layout->global[d];
      n -= copies.low[i] + copies.high[i];
      require(n >= 0, "[conv_transpose] padding leaves nothing in dimension {}: {}", d, x);
      if (axis < 0) continue;
      const WindowSpec window{spatial_extent(w)[i], a.stride[i], a.padding.low[i], a.dilation[i]};
      auto& cuts = layout->axes[static_cast<std::size_t>(axis)].cuts;
      cuts = centred_cuts_transposed(window, n, x.layout()->axes[static_cast<std::size_t>(axis)].cuts);
    }
  }
  return bias_activation(spatial::unpad(y, copies, layout), bias, a.activation);
}

}  // namespace

Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTransposeAttributes& attributes,
                      const SplitOutputs& outputs) {
  if (adds_copies(attributes.padding)) return copied_back(x, w, bias, attributes, outputs);
  ConvTransposeAttributes a = attributes;
  const auto product =
      spatial::plan_product("conv_transpose", x, w, bias, {.groups = a.groups, .transposed = true, .outputs = outputs});
  a.groups = product.groups;
  const auto activation = std::exchange(a.activation, Activation::none);
  const auto of_parts = product.sums ? Activation::none : activation;  // the activation is applied to the sum, not to its parts
  const auto in = global_spatial(x);
  const auto part = spatial::product_operands(product, x, w, bias);
  const auto& weight = part.w;
  Tensor y;
  LayoutPtr layout;
  if (!x.layout()) {
    y = local::conv_transpose(x, weight, a);
  } else {
    require_window("conv_transpose", spatial_extent(weight), a.stride, a.dilation);
    spatial::VolumeWindow s{spatial_extent(weight), a.stride, a.dilation, a.padding.low, {}, true};
    for (std::size_t i = 0; i < 3; ++i) {
      s.out[i] = (in[i] - 1) * s.stride[i] - a.padding.low[i] - a.padding.high[i] + s.dilation[i] * (s.kernel[i] - 1) +
                 a.output_padding[i] + 1;
      require(s.out[i] >= 0, "[conv_transpose] padding leaves nothing in dimension {}: {}", i + 1, x);
    }
    const auto plan = windowed_plan(*product.x, s, weight.dim(4) * a.groups);
    const auto window = windowed_input(part.x, plan);
    const HaloRoom room(halo_dimension(plan));
    const auto local_out = plan.out->box().extents();
    ConvAttributes forward{.stride = a.stride, .dilation = a.dilation, .padding = without_copies(a.padding), .groups = a.groups};
    Extent3 extent{};
    for (std::size_t i = 0; i < 3; ++i) {
      extent[i] = local_out[static_cast<int>(i) + 1];
      if (plan.split[i]) forward.padding.low[i] = plan.part[i].pad_low;
      // The right padding that makes the window of `extent` outputs fit exactly.
      const auto n = spatial_extent(window)[i];
      forward.padding.high[i] =
          (n - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1 - extent[i] - forward.padding.low[i];
      if (n == 0) forward.padding.high[i] = -extent[i] - forward.padding.low[i];
    }
    y = conv_data(window, weight, extent, forward);
    layout = plan.out;
  }
  y = local::bias_activation(y, parameter_for(part.x, part.bias), of_parts);
  return layout ? spatial::whole_product(product, y.with_layout(layout), bias, activation) : y;
}

namespace {

template <class Pooling>
Tensor pooled_with_copies(const Tensor& x, PoolAttributes a, const Pooling& pooling) {
  const Tensor padded = spatial::with_copies(x, a.padding);
  return pooling(padded, a);
}

}  // namespace

Tensor avg_pool(const Tensor& x, const PoolAttributes& a, Activation activation) {
  if (!x.layout()) return local::activated_avg_pool(x, activation, a);
  if (adds_copies(a.padding))
    return pooled_with_copies(x, a, [&](const Tensor& y, const PoolAttributes& rest) { return avg_pool(y, rest, activation); });
  const auto plan = windowed_plan(*x.layout(), pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  return averaged(padded, local_window(padded, plan, a), activation, plan.out, global_spatial(x), a);
}

Tensor max_pool(const Tensor& x, const PoolAttributes& a) {
  if (!x.layout()) return local::max_pool(x, a);
  if (adds_copies(a.padding)) return pooled_with_copies(x, a, max_pool);
  const auto plan = windowed_plan(*x.layout(), pooling(x, a), x.layout()->global[4]);
  const auto padded = windowed_input(x, plan);
  return maximum(padded, local_window(padded, plan, a), plan.out);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dAttributes& a) { return conv2d(x, w, Tensor(), a); }
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dAttributes& a) {
  require(x.rank() == 4 && w.rank() == 4, "[conv2d] needs [N, H, W, C] and weights [K, kh, kw, C/groups]: {}, {}", x, w);
  const auto plane = [](const Pair& p, std::int64_t depth) { return Triple(depth, p[0], p[1]); };
  return squeeze(conv(unsqueeze(x, 1), unsqueeze(w, 1), bias,
                      {.stride = plane(a.stride, 1),
                       .dilation = plane(a.dilation, 1),
                       .padding = of_planes(a.padding),
                       .groups = a.groups,
                       .activation = a.activation}),
                 {1});
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Conv1dAttributes& a) { return conv1d(x, w, Tensor(), a); }
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dAttributes& a) {
  require(x.rank() == 3 && w.rank() == 3, "[conv1d] needs [N, W, C] and weights [K, kw, C/groups]: {}, {}", x, w);
  return squeeze(conv2d(unsqueeze(x, 1), unsqueeze(w, 1), bias,
                        {.stride = {1, a.stride},
                         .dilation = {1, a.dilation},
                         .padding = of_lines(a.padding),
                         .groups = a.groups,
                         .activation = a.activation}),
                 {1});
}

Tensor global_avg_pool(const Tensor& x) {
  // In float32, so that sums over ranks are rounded only once, too.
  if (is_half(x.dtype())) return cast(global_avg_pool(cast(x, DType::float32)), x.dtype());
  return detail::whole(mean(x, {1, 2, 3}));
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, const SplitOutputs& outputs) {
  if (x.layout())
    require(x.rank() == 2 && !x.layout()->has(Placement::partial),
            "[linear] needs [N, in] that is not a partial sum; use flatten() or redistribute(): {}", x);
  const auto plan = spatial::plan_product("linear", x, w, bias, {.outputs = outputs});
  const auto part = spatial::product_operands(plan, x, w, bias);
  const auto of_parts = plan.sums ? Activation::none : activation;
  const auto y = local::linear(part.x.without_layout(), part.w, parameter_for(part.x, part.bias), of_parts);
  if (!x.layout()) return y;
  Layout layout = *plan.x;
  layout.global[1] = part.w.dim(0);
  return spatial::whole_product(plan, y.with_layout(std::make_shared<Layout>(std::move(layout))), bias, activation);
}

Tensor embedding(const Tensor& indices, const Tensor& table) {
  require(!is_floating(indices.dtype()) && indices.dtype() != DType::boolean && table.rank() == 2,
          "[embedding] needs integers and a table [rows, features]: {}, {}", indices, table);
  spatial::require_no_share("embedding", indices);
  const auto rows = parameter_for(indices, table);
  Shape shape = indices.shape();
  const auto index = cast(constant(indices.without_layout()), DType::int64);
  shape.push_back(rows.dim(1));
  const auto y = reshape(take(rows, reshape(index, Shape{index.elements()})), shape);
  if (!indices.layout()) return y;
  Layout layout = *indices.layout();
  layout.global.push_back(rows.dim(1));
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

Tensor detail::whole(const Tensor& x) {
  if (!x.layout() || !x.layout()->has(Placement::partial)) return x;
  Layout layout = *x.layout();
  for (auto& axis : layout.axes)
    if (axis.placement == Placement::partial) axis = {Placement::replicated, -1, {}};
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

}  // namespace mpigrad
