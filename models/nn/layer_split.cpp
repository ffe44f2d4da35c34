#include "models/nn/layer_split.h"

#include <algorithm>

#include "comm/distributed/grid.h"
#include "comm/distributed/redistribute.h"

namespace mpigrad::nn {
namespace {

using Cuts = std::vector<std::int64_t>;

LayoutPtr block_layout(const Layout& beside, std::size_t axis, const Shape& global, int dimension, Cuts cuts) {
  Layout layout{beside.grid, global, std::vector<AxisPlacement>(beside.axes.size())};
  layout.axes[axis] = {Placement::split, dimension, std::move(cuts)};
  return std::make_shared<Layout>(std::move(layout));
}

Cuts scaled(Cuts cuts, std::int64_t times, std::int64_t over = 1) {
  for (auto& cut : cuts) cut = cut * times / over;
  return cuts;
}

bool all_multiples(const Cuts& cuts, std::int64_t of) {
  return std::all_of(cuts.begin(), cuts.end(), [&](auto cut) { return cut % of == 0; });
}

// The grid axis of that name if it has more than one rank, else -1. Error: the grid lacks the axis, unless `name` is the default
// name `usual`.
int axis_named(const std::string& layer, const GridShape& grid, const std::string& name, const std::string& usual) {
  const auto found = std::find(grid.names.begin(), grid.names.end(), name);
  require(found != grid.names.end() || name == usual, "[{}] is to be split along the axis {}, which the grid does not have",
          layer, name);
  if (found == grid.names.end()) return -1;
  const auto axis = found - grid.names.begin();
  return grid.extents[static_cast<std::size_t>(axis)] > 1 ? static_cast<int>(axis) : -1;
}

// True if the grid axis splits neither samples nor space.
bool is_free(const Layout& layout, int axis, int channels) {
  const auto& placed = layout.axes[static_cast<std::size_t>(axis)];
  return placed.placement != Placement::split || placed.dimension == channels;
}

// Splits a weight's outputs along one grid axis and its inputs along the other: the inputs along the axis that splits the
// channels of x, or, if none does, along `along` for ChannelSplit::channels and along `beside` otherwise.
ProductLayouts cut_twice(const Tensor& x, const LayerProduct& p, ChannelSplit split, int along, int beside) {
  const auto& layout = *x.layout();
  const int of_x = layout.axis_of(x.rank() - 1), last = p.weight.rank() - 1;
  const bool first_takes = of_x >= 0 ? of_x == along : split == ChannelSplit::channels;
  const auto in = static_cast<std::size_t>(first_takes ? along : beside);
  const auto out = static_cast<std::size_t>(first_takes ? beside : along);
  const auto of_outputs = balanced_cuts(p.out, layout.grid->extents[out]);
  auto weight = *block_layout(layout, out, p.weight, p.transposed ? last : 0, of_outputs);
  weight.axes[in] = {Placement::split, p.transposed ? 0 : last,
                     of_x >= 0 ? layout.axes[in].cuts : balanced_cuts(layout.global.back(), layout.grid->extents[in])};
  return {std::make_shared<Layout>(std::move(weight)), block_layout(layout, out, {p.out}, 0, of_outputs)};
}

}  // namespace

ProductLayouts product_layouts(const std::string& layer, const Tensor& x, const LayerProduct& p,
                               const std::optional<LayerSplit>& own, const LayerSplit& network, bool whole) {
  if (!x.layout()) return {};
  auto split = own.value_or(network);
  if (split.split == ChannelSplit::none || (split.split == ChannelSplit::groups && p.groups == 1)) return {};
  if (!own && whole && split.split == ChannelSplit::filters) split.split = ChannelSplit::channels;
  const auto& layout = *x.layout();
  const LayerSplit usual;
  int along = axis_named(layer, *layout.grid, split.axis, usual.axis);
  int beside = axis_named(layer, *layout.grid, split.beside, usual.beside);
  if (beside == along) beside = -1;
  if (along < 0) std::swap(along, beside);
  if (along < 0) return {};
  const int cut = layout.axis_of(x.rank() - 1);
  if (beside >= 0 && p.groups == 1 && !whole && is_free(layout, along, x.rank() - 1) && is_free(layout, beside, x.rank() - 1) &&
      (cut < 0 || cut == along || cut == beside))
    return cut_twice(x, p, split.split, along, beside);
  if (beside >= 0 && beside == cut) std::swap(along, beside);
  const auto axis = static_cast<std::size_t>(along);
  const int ranks = layout.grid->extents[axis], last = p.weight.rank() - 1;
  const auto& of_x = layout.axes[axis];
  const bool x_split = of_x.placement == Placement::split, channels_split = x_split && of_x.dimension == x.rank() - 1;
  const auto part = [&](const Shape& global, int dimension, Cuts cuts) {
    return block_layout(layout, axis, global, dimension, std::move(cuts));
  };
  if (p.groups > 1) {
    const auto each = layout.global.back() / p.groups, rows = p.weight[0] / p.groups;
    const bool between = channels_split && all_multiples(of_x.cuts, each);
    const auto cuts = between ? scaled(of_x.cuts, 1, each) : balanced_cuts(p.groups, ranks);
    return {part(p.weight, 0, scaled(cuts, rows)),
            x_split && !channels_split ? nullptr : part({p.out}, 0, scaled(cuts, p.out / p.groups))};
  }
  const auto of_outputs = balanced_cuts(p.out, ranks);
  if (x_split && !channels_split) return {part(p.weight, 0, balanced_cuts(p.weight[0], ranks)), nullptr};
  if (split.split == ChannelSplit::filters)
    return {part(p.weight, p.transposed ? last : 0, of_outputs), part({p.out}, 0, of_outputs)};
  ProductLayouts result{
      part(p.weight, p.transposed ? 0 : last, channels_split ? of_x.cuts : balanced_cuts(layout.global.back(), ranks)), nullptr};
  if (split.scatter && !whole) result.bias = part({p.out}, 0, of_outputs), result.outputs = {.axis = along, .cuts = of_outputs};
  return result;
}

Tensor cut_beside(const Tensor& x, const Tensor& w, const LayerProduct& p) {
  if (!x.layout() || !w.layout()) return x;
  const int axis = x.layout()->axis_of(x.rank() - 1);
  if (axis < 0) return x;
  const auto a = static_cast<std::size_t>(axis);
  const auto& of_w = w.layout()->axes[a];
  const int in = p.transposed || p.groups > 1 ? 0 : p.weight.rank() - 1;
  if (of_w.placement != Placement::split || of_w.dimension != in) return x;
  Layout layout = *x.layout();
  layout.axes[a].cuts = p.groups > 1 ? scaled(of_w.cuts, layout.global.back(), p.weight[0]) : of_w.cuts;
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

LayoutPtr layout_of_channels(const Tensor& x) {
  const int axis = x.layout() ? x.layout()->axis_of(x.rank() - 1) : -1;
  if (axis < 0) return nullptr;
  const auto a = static_cast<std::size_t>(axis);
  return block_layout(*x.layout(), a, {x.layout()->global.back()}, 0, x.layout()->axes[a].cuts);
}

}  // namespace mpigrad::nn
