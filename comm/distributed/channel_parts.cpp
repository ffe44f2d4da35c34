#include "comm/distributed/channel_parts.h"

#include <algorithm>

#include "comm/collectives/collectives.h"
#include "comm/distributed/bias_activation.h"
#include "comm/distributed/grid.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/local_parts.h"
#include "comm/distributed/redistribute.h"
#include "framework/base/joined.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace spatial {
namespace {

using Cuts = std::vector<std::int64_t>;

Rows rows_of(const Cuts& cuts) {
  Rows rows;
  for (std::size_t r = 1; r < cuts.size(); ++r) rows.push_back(cuts[r] - cuts[r - 1]);
  return rows;
}

Cuts times(Cuts cuts, std::int64_t factor) {
  for (auto& cut : cuts) cut *= factor;
  return cuts;
}

// Error, reported for `op`: a parameter that cannot be used with x.
void require_beside(const char* op, const Tensor& x, const Tensor& w) {
  require_no_share(op, w);
  if (w.layout())
    require(w.layout()->grid->ranks() == x.layout()->grid->ranks(),
            "[{}] input and parameter are on process grids of different ranks: {}, {}", op, x, w);
}

LayoutPtr layout_beside(const Tensor& x, const Tensor& w, std::vector<AxisPlacement> axes) {
  return std::make_shared<Layout>(Layout{x.layout()->grid, global_shape(w), std::move(axes)});
}

struct Planner {
  const char* op;
  const Tensor &x, &w;
  const ProductAttributes& a;
  const Layout& layout = *x.layout();
  std::int64_t in = layout.global.back(), out = 0;
  int w_in = a.transposed ? 0 : w.rank() - 1, w_out = a.transposed ? w.rank() - 1 : 0;

  // The placement of w along an axis of x's grid; a w that is replicated is so on any grid of the same ranks.
  AxisPlacement of_weight(std::size_t axis) const {
    return w.layout() && w.layout()->grid == layout.grid ? w.layout()->axes[axis] : AxisPlacement{};
  }
  const std::string& name(std::size_t axis) const { return layout.grid->names[axis]; }

  void require_operands() {
    require_no_share(op, x);
    require_beside(op, x, w);
    const auto shape = global_shape(w);
    require(w.rank() >= 2 && a.groups > 0 && shape[0] % a.groups == 0,
            "[{}] {} channels are not a multiple of {} groups: weight {}", op, shape[0], a.groups, shape);
    out = shape[w_out] * (a.transposed ? a.groups : 1);
    const auto takes = shape[w_in] * (a.transposed ? 1 : a.groups);
    require(takes == in, "[{}] weight has {} input channels, input has {}: input {}, weight {}, groups {}", op, takes, in,
            layout.global, shape, a.groups);
    require(a.outputs.axis < layout.grid->axes(), "[{}] outputs are to be split along axis {} of a grid of {}", op,
            a.outputs.axis, layout.grid->axes());
  }

  Cuts asked_cuts(std::size_t axis) const {
    if (a.outputs.cuts.empty()) return balanced_cuts(out, layout.grid->extents[axis]);
    const auto& cuts = a.outputs.cuts;
    if (!(static_cast<int>(cuts.size()) == layout.grid->extents[axis] + 1 && cuts.front() == 0 && cuts.back() == out &&
          std::is_sorted(cuts.begin(), cuts.end())))
      fail("[{}] cuts {} do not divide {} output channels among {} ranks", op, joined(cuts, ", "), out,
           layout.grid->extents[axis]);
    return cuts;
  }

  // Converts cuts of channels to cuts counted in groups. Error: a cut inside a group.
  Cuts in_groups(const char* what, const Cuts& cuts, std::int64_t channels) const {
    const auto each = channels / a.groups;
    Cuts result;
    for (const auto cut : cuts) {
      require(each == 0 || cut % each == 0,
              "[{}] the cut of {} at channel {} is inside a group of {}; cut between groups, with_cuts(), or make them whole by "
              "redistribute(): {} and {}",
              op, what, cut, each, x, w);
      result.push_back(each == 0 ? 0 : cut / each);
    }
    return result;
  }

  void require_equal(const char* what, const Cuts& found, const Cuts& expected) const {
    if (found != expected)
      fail("[{}] {} are cut at {}, which does not fit {}; redistribute one: {} and {}", op, what, joined(found, "|"),
           joined(expected, "|"), x, w);
  }

  ProductAxis grouped(std::size_t axis, bool asked) const {
    const auto from_x = layout.axes[axis], from_w = of_weight(axis);
    const bool x_split = from_x.placement == Placement::split, w_split = from_w.placement == Placement::split;
    require(!w_split || from_w.dimension == 0,
            "[{}] dimension {} of the weight of a grouped product is split; groups can be, along dimension 0: {}", op,
            from_w.dimension, w);
    const auto rows = global_shape(w)[0];
    Cuts groups;
    if (x_split) groups = in_groups("the input", from_x.cuts, in);
    else if (w_split) groups = in_groups("the weight", from_w.cuts, rows);
    else if (!a.outputs.cuts.empty()) groups = in_groups("the output", asked_cuts(axis), out);
    else groups = balanced_cuts(a.groups, layout.grid->extents[axis]);
    ProductAxis plan{ChannelSplit::groups, times(groups, in / a.groups), times(groups, out / a.groups),
                     times(groups, rows / a.groups), 0};
    if (w_split) require_equal("the weight's groups", from_w.cuts, plan.w);
    if (asked && !a.outputs.cuts.empty()) require_equal("the outputs", a.outputs.cuts, plan.y);
    return plan;
  }

  ProductAxis along(std::size_t axis) const {
    const auto from_x = layout.axes[axis], from_w = of_weight(axis);
    const bool x_split = from_x.placement == Placement::split, w_split = from_w.placement == Placement::split;
    const bool asked = a.outputs.axis == static_cast<int>(axis) && layout.grid->extents[axis] > 1;
    if (x_split && from_x.dimension != x.rank() - 1) {
      require(!asked, "[{}] the outputs cannot be split along grid axis {}, which splits dimension {} of the input: {}", op,
              name(axis), from_x.dimension, x);
      return {};
    }
    if (!x_split && !w_split && !asked) return {};
    if (a.groups > 1) return grouped(axis, asked);
    require(!w_split || from_w.dimension == w_in || from_w.dimension == w_out,
            "[{}] dimension {} of the weight is split; its inputs and outputs can be, dimensions {} and {}: {}", op,
            from_w.dimension, w_in, w_out, w);
    if (w_split ? from_w.dimension == w_out : !x_split) {
      ProductAxis plan{ChannelSplit::filters, {}, w_split ? from_w.cuts : asked_cuts(axis), {}, w_out};
      if (asked && !a.outputs.cuts.empty()) require_equal("the outputs", a.outputs.cuts, plan.y);
      plan.w = plan.y;
      return plan;
    }
    ProductAxis plan{ChannelSplit::channels, x_split ? from_x.cuts : from_w.cuts, {}, {}, w_in};
    if (x_split && w_split) require_equal("the weight's inputs", from_w.cuts, plan.x);
    plan.w = plan.x;
    if (asked) plan.y = asked_cuts(axis);
    return plan;
  }

  std::vector<ProductAxis> run() {
    require_operands();
    std::vector<ProductAxis> plans;
    std::vector<std::size_t> in_axes, out_axes;
    for (std::size_t axis = 0; axis < layout.axes.size(); ++axis) {
      plans.push_back(along(axis));
      if (!plans.back().x.empty()) in_axes.push_back(axis);
      if (!plans.back().y.empty()) out_axes.push_back(axis);
    }
    if (in_axes.size() > 1)
      fail("[{}] two grid axes, {} and {}, split the input channels: {} and {}", op, name(in_axes[0]), name(in_axes[1]), x, w);
    if (out_axes.size() > 1)
      fail("[{}] two grid axes, {} and {}, split the output channels: {} and {}", op, name(out_axes[0]), name(out_axes[1]), x, w);
    return plans;
  }
};

// This rank's part of x with all the channels that the product needs.
Tensor input_part(const ProductPlan& plan, const Tensor& x) {
  const int channels = x.rank() - 1;
  const auto& grid = grid_of(*x.layout());
  Layout layout = *x.layout();
  Tensor part = plan.replicated.empty() ? x.without_layout() : replicate(x, grid.along(plan.replicated));
  if (plan.gathered >= 0) {
    auto& axis = layout.axes[static_cast<std::size_t>(plan.gathered)];
    part = allgather(part, grid.along({plan.gathered}), rows_of(axis.cuts), channels);
    axis = {};
  }
  if (plan.cut >= 0) {
    const auto whole = std::make_shared<Layout>(layout);
    const auto a = static_cast<std::size_t>(plan.cut);
    layout.axes[a] = {Placement::split, channels, plan.axes[a].x};
    part = redistribute(part.with_layout(whole), std::make_shared<Layout>(std::move(layout))).without_layout();
  }
  return part.with_layout(plan.x);
}

}  // namespace

bool splits_channels(const Tensor& x, std::initializer_list<Tensor> parameters) {
  if (!x.layout()) return false;
  return x.layout()->axis_of(x.rank() - 1) >= 0 || std::any_of(parameters.begin(), parameters.end(), [&](const Tensor& p) {
           return p && p.layout() && p.layout()->has(Placement::split) && !is_stored(x, p);
         });
}

Tensor own_channels(const Tensor& x) {
  Layout layout = *x.layout();
  const int last = x.rank() - 1, axis = layout.axis_of(last);
  if (axis < 0) return x;
  layout.axes[static_cast<std::size_t>(axis)] = {};
  layout.global[last] = x.dim(last);
  return x.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Tensor with_channels_of(const Tensor& x, const Tensor& y) {
  const int split = x.layout()->axis_of(x.rank() - 1);
  if (split < 0) return y;
  Layout layout = *y.layout();
  const auto axis = static_cast<std::size_t>(split);
  layout.axes[axis] = {Placement::split, y.rank() - 1, x.layout()->axes[axis].cuts};
  layout.global[y.rank() - 1] = x.layout()->global.back();
  return y.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Tensor block_in(const Tensor& x, const Tensor& w, const LayoutPtr& layout) {
  Tensor from = w;
  if (!w.layout() || w.layout()->grid != layout->grid) {
    const std::vector<AxisPlacement> same(layout->axes.size());
    const auto whole = std::make_shared<Layout>(Layout{layout->grid, layout->global, same});
    from = is_stored(x, w) ? redistribute(w, whole) : w.with_layout(whole);
  }
  return redistribute(from, layout).without_layout();
}

Tensor block_beside(const char* op, const Tensor& x, const Tensor& w, int dimension) {
  if (!w || !x.layout()) return w;
  require(global_shape(w)[dimension] == x.layout()->global.back(), "[{}] a parameter has {} channels, the input {}: {}, {}", op,
          global_shape(w)[dimension], x.layout()->global.back(), w, x);
  std::vector<AxisPlacement> axes(x.layout()->axes.size());
  if (const int axis = x.layout()->axis_of(x.rank() - 1); axis >= 0) {
    const auto a = static_cast<std::size_t>(axis);
    axes[a] = {Placement::split, dimension, x.layout()->axes[a].cuts};
  }
  require_beside(op, x, w);
  return block_in(x, w, layout_beside(x, w, std::move(axes)));
}

void require_no_share(const char* op, const Tensor& x) {
  if (x && x.layout())
    require(!x.layout()->has(Placement::partial), "[{}] of a partial sum; make it whole with redistribute() first: {}", op, x);
}

ProductPlan plan_product(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, const ProductAttributes& a) {
  ProductPlan plan{.x = x.layout(), .weight = global_shape(w), .groups = a.groups};
  if (!x.layout()) {
    require(a.outputs.axis < 0, "[product] outputs of a plain tensor cannot be split; give it a layout: {}", x);
    return plan;
  }
  if (!splits_channels(x, {w, bias}) && a.outputs.axis < 0) return plan;
  plan.axes = Planner{op, x, w, a}.run();
  plan.outputs = plan.weight[a.transposed ? -1 : 0] * (a.transposed ? a.groups : 1);
  Layout part = *x.layout();
  std::vector<AxisPlacement> of_weight(plan.axes.size()), of_bias(plan.axes.size());
  const auto at = part.grid->coordinates(part.grid->rank);
  for (std::size_t i = 0; i < plan.axes.size(); ++i) {
    const auto& axis = plan.axes[i];
    const auto own = [&](const Cuts& cuts) {
      const auto r = static_cast<std::size_t>(at[i]);
      return cuts[r + 1] - cuts[r];
    };
    const bool same = part.axes[i].placement == Placement::replicated;
    plan.sums = plan.sums || axis.split == ChannelSplit::channels;
    if (axis.split == ChannelSplit::filters && same) plan.replicated.push_back(static_cast<int>(i));
    if (axis.split == ChannelSplit::filters && !same) plan.gathered = static_cast<int>(i);
    if (!axis.x.empty() && same) plan.cut = static_cast<int>(i);
    if (!axis.w.empty()) of_weight[i] = {Placement::split, axis.w_dimension, axis.w};
    if (!axis.y.empty()) of_bias[i] = {Placement::split, 0, axis.y};
    if (axis.split == ChannelSplit::filters) part.axes[i] = {};
    if (axis.x.empty()) continue;
    const auto each = axis.split == ChannelSplit::groups ? axis.x.back() / plan.groups : 0;
    if (each != 0) plan.groups = own(axis.x) / each;
    part.axes[i] = {};
    part.global[x.rank() - 1] = own(axis.x);
  }
  plan.x = std::make_shared<Layout>(std::move(part));
  plan.w = layout_beside(x, w, std::move(of_weight));
  if (bias && !plan.sums) {
    require_beside(op, x, bias);
    plan.bias = layout_beside(x, bias, std::move(of_bias));
  }
  plan.weight = plan.w->box().extents();
  plan.idle = plan.groups == 0;
  if (plan.idle) plan.weight[-1] = 0, plan.groups = 1;
  return plan;
}

ProductOperands product_operands(const ProductPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias) {
  // Kernels of the CPU take float32 weights, and those that round them do so while they reorder them: no copies in 16 bits.
  const auto weight_for = [](const Tensor& part, const Tensor& weight) {
    return part.device() == DeviceKind::cuda ? parameter_for(part, weight) : replicated_for(part, weight);
  };
  if (plan.axes.empty()) return {x, weight_for(x, w), bias};
  auto weight = block_in(x, w, plan.w);
  const auto part = input_part(plan, x);
  if (plan.idle) weight = slice(weight, -1, 0, 0);
  const auto of_part = plan.bias ? block_in(x, bias, plan.bias) : Tensor();
  return {part, weight_for(part, weight), of_part};
}

Tensor whole_product(const ProductPlan& plan, Tensor y, const Tensor& bias, Activation activation) {
  if (plan.axes.empty()) return y;
  Layout made = *y.layout(), wanted = made;
  const int last = y.rank() - 1;
  made.global[last] = wanted.global[last] = plan.outputs;
  for (std::size_t i = 0; i < plan.axes.size(); ++i) {
    const auto& axis = plan.axes[i];
    if (!axis.y.empty()) wanted.axes[i] = {Placement::split, last, axis.y};
    made.axes[i] = axis.split == ChannelSplit::channels ? AxisPlacement{Placement::partial, -1, {}} : wanted.axes[i];
  }
  y = redistribute(y.with_layout(std::make_shared<Layout>(std::move(made))), std::make_shared<Layout>(std::move(wanted)));
  return plan.sums && (bias || activation != Activation::none) ? bias_activation(y, bias, activation) : y;
}

}  // namespace spatial

std::vector<ChannelSplit> channel_splits(const Tensor& x, const Tensor& w, const ProductAttributes& attributes) {
  require(x.layout() != nullptr, "[channel_splits] needs a distributed tensor: {}", x);
  std::vector<ChannelSplit> result;
  for (const auto& plan : spatial::Planner{"channel_splits", x, w, attributes}.run()) result.push_back(plan.split);
  return result;
}

std::int64_t channels_of(const Tensor& x) { return x.layout() ? x.layout()->global.back() : x.dim(-1); }

Tensor whole_channels(const Tensor& x) {
  const int axis = x.layout() ? x.layout()->axis_of(x.rank() - 1) : -1;
  if (axis < 0) return x;
  Layout layout = *x.layout();
  layout.axes[static_cast<std::size_t>(axis)] = {};
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

Tensor spatial::rounded(const Tensor& x, DType dtype) {
  if (!x || !is_half(dtype) || x.dtype() != DType::float32) return x;
  static constexpr char keys[2] = {};  // only their addresses are used
  auto* tape = Tape::innermost();
  const auto make = [&] { return cast(x, dtype); };
  return tape ? tape->memoised(x.id(), &keys[dtype == DType::bfloat16 ? 0 : 1], make) : make();
}
Tensor parameter_for(const Tensor& x, const Tensor& w) { return spatial::rounded(spatial::replicated_for(x, w), x.dtype()); }

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  if (!x.layout()) return local::bias_activation(x, parameter_for(x, bias), activation);
  spatial::require_no_share("bias_activation", x);
  const bool split = spatial::splits_channels(x, {bias});
  const auto block = split ? spatial::block_beside("bias_activation", x, bias) : bias;
  const auto beside = parameter_for(split ? spatial::own_channels(x) : x, block);
  const HaloRoom room(spatial::halo_dimension(*x.layout()));
  return local::bias_activation(x.without_layout(), beside, activation).with_layout(x.layout());
}

}  // namespace mpigrad
