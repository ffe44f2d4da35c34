#include "comm/spatial/distributed.h"

#include <algorithm>
#include <utility>

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

// What a windowed op on a distributed tensor needs: the plan of the exchange, the padding of the local op, the result's layout.
struct WindowedPlan {
  std::vector<int> axes;  // grid axes that split a spatial dimension
  BoxPlanPtr boxes;       // over grid.along(axes)
  bool moves = false;     // whether any rank needs more or less than its own block
  LayoutPtr out;
  std::array<WindowPart, 3> part{};  // this rank's, for split dimensions
  std::array<bool, 3> split{};
};

struct Spatial {
  Extent3 kernel, stride, dilation, low, out;
  bool transposed = false;
};

WindowSpec spec(const Spatial& s, std::size_t i) {
  return {.kernel = s.kernel[i], .stride = s.stride[i], .padding_low = s.low[i], .dilation = s.dilation[i]};
}

// The layout of the result has `channels` channels.
WindowedPlan windowed_plan(const Tensor& x, const Spatial& s, std::int64_t channels) {
  const auto& layout = *x.layout();
  WindowedPlan result;
  Layout out = layout;
  for (std::size_t i = 0; i < 3; ++i) out.global[static_cast<int>(i) + 1] = s.out[i];
  require(layout.axis_of(4) < 0, "[window] the channels are split; redistribute them first: {}", x);
  require(!layout.has(Placement::share), "[window] of a share; make it whole with redistribute() first: {}", x);
  out.global[4] = channels;

  std::array<std::vector<WindowPart>, 3> parts;
  const auto coordinates = layout.grid->coordinates(layout.grid->rank);
  for (std::size_t a = 0; a < layout.axes.size(); ++a) {
    const auto& axis = layout.axes[a];
    if (axis.placement != Placement::split || axis.dimension < 1 || axis.dimension > 3) continue;
    const auto i = static_cast<std::size_t>(axis.dimension - 1);
    out.axes[a].cuts =
        s.transposed ? centred_cuts_transposed(spec(s, i), s.out[i], axis.cuts) : centred_cuts(spec(s, i), s.out[i], axis.cuts);
    parts[i] = s.transposed ? window_parts_transposed(spec(s, i), axis.cuts, out.axes[a].cuts)
                            : window_parts(spec(s, i), axis.cuts, out.axes[a].cuts);
    result.split[i] = true;
    result.part[i] = parts[i][static_cast<std::size_t>(coordinates[a])];
    result.axes.push_back(static_cast<int>(a));
  }
  result.out = std::make_shared<Layout>(std::move(out));
  if (result.axes.empty()) return result;

  const auto& grid = grid_of(layout);
  const auto group = grid.along(result.axes);
  auto plan = std::make_shared<BoxPlan>();
  for (int r = 0; r < grid.ranks(); ++r) {
    const auto at = grid.coordinates(r);
    bool member = true;
    for (std::size_t a = 0; a < at.size(); ++a)
      member = member && (at[a] == coordinates[a] ||
                          std::find(result.axes.begin(), result.axes.end(), static_cast<int>(a)) != result.axes.end());
    if (!member) continue;
    Box have = layout.box(r), need = have;
    for (const int a : result.axes) {
      const int dimension = layout.axes[static_cast<std::size_t>(a)].dimension;
      const auto& part =
          parts[static_cast<std::size_t>(dimension - 1)][static_cast<std::size_t>(at[static_cast<std::size_t>(a)])];
      need.begin[dimension] = part.begin, need.end[dimension] = part.end;
    }
    result.moves = result.moves || !(have == need);
    plan->have.push_back(std::move(have));
    plan->need.push_back(std::move(need));
  }
  result.boxes = std::move(plan);
  return result;
}

Tensor windowed_input(const Tensor& x, const WindowedPlan& plan) {
  const auto local = x.without_layout();
  return plan.moves ? exchange(local, grid_of(*x.layout()).along(plan.axes), plan.boxes) : local;
}

Extent3 global_spatial(const Tensor& x) {
  require(x.rank() == 5, "[window] needs [N, D, H, W, C]: {}", x);
  if (!x.layout()) return spatial_extent(x);
  return {x.layout()->global[1], x.layout()->global[2], x.layout()->global[3]};
}

// The first spatial dimension that the plan splits, or -1: outputs get room for halos there.
int halo_dimension(const WindowedPlan& plan) {
  for (std::size_t i = 0; i < 3; ++i)
    if (plan.split[i]) return static_cast<int>(i) + 1;
  return -1;
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

int spatial::halo_dimension(const Layout& layout) {
  for (int d = 1; d + 1 < layout.global.rank(); ++d)
    if (layout.axis_of(d) >= 0) return d;
  return -1;
}

Communicator spatial::group_of(const Tensor& x, const std::vector<int>& axes) { return grid_of(*x.layout()).along(axes); }

Tensor spatial::replicated_for(const Tensor& x, const Tensor& w) {
  if (!w || !x.layout()) return w;
  if (w.layout()) require(w.layout()->varying_axes().empty(), "[replicate] a parameter is the same on all ranks: {}", w);
  const auto axes = x.layout()->varying_axes();
  return axes.empty() ? w.without_layout() : replicate(w, group_of(x, axes));
}

void spatial::require_whole_channels(const char* op, const Tensor& x) {
  if (!x.layout()) return;
  require(x.layout()->axis_of(x.rank() - 1) < 0, "[{}] the channels are split; redistribute them first: {}", op, x);
  require(!x.layout()->has(Placement::share), "[{}] of a share; make it whole with redistribute() first: {}", op, x);
}

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

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes) {
  ConvAttributes a = attributes;
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

Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTransposeAttributes& attributes) {
  ConvTransposeAttributes a = attributes;
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
  const auto plan = windowed_plan(x, pooling(x, a), x.dim(4));
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
  const auto plan = windowed_plan(x, pooling(x, a), x.dim(4));
  const auto padded = windowed_input(x, plan);
  const HaloRoom room(halo_dimension(plan));
  return apply_all(ops::MaxPool{local_window(padded, plan, a)}, {padded})[0].with_layout(plan.out);
}

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  const double slope = activation.slope();
  if (!x.layout()) return local::bias_activation(x, parameter_for(x, bias), slope);
  spatial::require_whole_channels("bias_activation", x);
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

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation) {
  if (x.layout())
    require(x.rank() == 2 && x.layout()->axis_of(1) < 0 && !x.layout()->has(Placement::share),
            "[linear] the features of [N, in] must be whole on every rank; use flatten() or redistribute(): {}", x);
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
