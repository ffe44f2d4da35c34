#include "ops/layout_rules.h"

#include <algorithm>

#include "ops/broadcast.h"

namespace mpigrad {
namespace {

const char* no_split = "redistribute it so that the dimension is whole on every rank";

// One operand's placement along a grid axis with its dimension counted from the right, which is how shapes broadcast.
struct Placed {
  Placement placement;
  int from_right;
  const std::vector<std::int64_t>* cuts;
};

Placed placed(const Tensor& x, std::size_t axis) {
  const auto& at = x.layout()->axes[axis];
  return {at.placement, at.dimension - x.rank(), &at.cuts};
}

}  // namespace

LayoutPtr elementwise_layout(std::string_view op, Inputs in, Elementwise kind) {
  const Tensor* model = nullptr;
  Shape global;
  bool first = true;
  for (const auto& x : in) {
    if (!x.layout()) {
      require(x.elements() == 1 && x.is_constant(), "[{}] mixes a distributed tensor with a local one; give it a layout: {}, {}",
              op, in.front(), in.back());
      continue;
    }
    require(!model || model->layout()->grid == x.layout()->grid, "[{}] operands are on different process grids: {}, {}", op,
            in.front(), in.back());
    if (!model || x.rank() > model->rank()) model = &x;
    global = first ? x.layout()->global : broadcast_shapes(op, global, x.layout()->global);
    first = false;
  }
  Layout result{model->layout()->grid, global, model->layout()->axes};
  const bool any_share =
      std::any_of(in.begin(), in.end(), [](const Tensor& x) { return x.layout() && x.layout()->has(Placement::share); });
  for (std::size_t a = 0; a < result.axes.size(); ++a) {
    Placement placement = Placement::same;
    int shares = 0;
    Placed split{Placement::same, 0, nullptr};
    for (const auto& x : in)
      if (x.layout() && x.layout()->axes[a].placement == Placement::split) split = placed(x, a);
    for (const auto& x : in) {
      if (!x.layout()) {
        require(kind == Elementwise::product || kind == Elementwise::quotient || !any_share,
                "[{}] adds a constant to a share, once per rank; write once() around it: {}, {}", op, in.front(), in.back());
        continue;
      }
      const auto here = placed(x, a);
      if (here.placement == Placement::share) ++shares;
      if (split.cuts && here.placement == Placement::same) {
        const bool broadcasts = -split.from_right > x.rank() || x.dim(split.from_right) == 1;
        require(x.is_constant() && broadcasts,
                "[{}] one operand is split over grid axis {}, the other is the same on all its ranks; replicate it: {}, {}", op,
                result.grid->names[a], in.front(), in.back());
      } else if (split.cuts) {
        require(here.placement == Placement::split && here.from_right == split.from_right && *here.cuts == *split.cuts,
                "[{}] operands are laid out differently over grid axis {}; redistribute one: {}, {}", op, result.grid->names[a],
                in.front(), in.back());
      }
    }
    if (split.cuts) {
      placement = Placement::split;
    } else if (shares > 0) {
      placement = Placement::share;
      const auto operands = static_cast<int>(in.size());
      switch (kind) {
        case Elementwise::nonlinear:
          fail("[{}] of a share is not a share of the result; make it whole with redistribute() or total() first: {}", op,
               in.front());
        case Elementwise::linear:
          require(shares == operands,
                  "[{}] adds a value that is the same on all ranks to a share, once per rank; write once() around it: {}, {}", op,
                  in.front(), in.back());
          break;
        case Elementwise::product:
          require(shares == 1, "[{}] is a product of shares, which is not a share of the product; redistribute one first: {}, {}",
                  op, in.front(), in.back());
          break;
        case Elementwise::quotient:
          require(shares == 1 && in.front().layout() && in.front().layout()->axes[a].placement == Placement::share,
                  "[{}] divides by a share; redistribute it first: {}, {}", op, in.front(), in.back());
          break;
      }
    }
    result.axes[a] = {placement, -1, {}};
    if (split.cuts) result.axes[a] = {placement, split.from_right + global.rank(), *split.cuts};
  }
  return std::make_shared<Layout>(std::move(result));
}

LayoutPtr reduction_layout(std::string_view op, const Tensor& x, std::span<const int> axes, bool keep, bool is_sum) {
  const auto& layout = *x.layout();
  Layout result{layout.grid, {}, layout.axes};
  std::vector<int> moved(static_cast<std::size_t>(x.rank()), -1);
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (reduced && !keep) continue;
    moved[static_cast<std::size_t>(d)] = result.global.rank();
    result.global.push_back(reduced ? 1 : layout.global[d]);
  }
  for (auto& axis : result.axes) {
    require(is_sum || axis.placement != Placement::share,
            "[{}] of a share is not a share of the result; redistribute it first: {}", op, x);
    if (axis.placement != Placement::split) continue;
    if (std::find(axes.begin(), axes.end(), axis.dimension) != axes.end()) {
      require(is_sum, "[{}] over dimension {}, which is split; {}: {}", op, axis.dimension, no_split, x);
      axis = {Placement::share, -1, {}};
    } else {
      axis.dimension = moved[static_cast<std::size_t>(axis.dimension)];
    }
  }
  return std::make_shared<Layout>(std::move(result));
}

LayoutPtr permutation_layout(const Tensor& x, std::span<const int> order) {
  const auto& layout = *x.layout();
  Layout result{layout.grid, {}, layout.axes};
  for (const int from : order) result.global.push_back(layout.global[from]);
  for (auto& axis : result.axes)
    if (axis.placement == Placement::split)
      axis.dimension = static_cast<int>(std::find(order.begin(), order.end(), axis.dimension) - order.begin());
  return std::make_shared<Layout>(std::move(result));
}

LayoutPtr reshape_layout(std::string_view op, const Tensor& x, const Shape& local, std::span<const int> from) {
  const auto& layout = *x.layout();
  Layout result{layout.grid, local, layout.axes};
  for (auto& axis : result.axes) {
    if (axis.placement != Placement::split) continue;
    // The split dimension survives if some dimension of the result has the same extent and as many elements behind it. Extents
    // of 1 leave a choice, which must not differ from the other ranks': where possible a dimension keeps its place.
    const auto behind = x.shape().elements(axis.dimension + 1, x.rank());
    int found = -1;
    for (int d = 0; d < local.rank(); ++d) {
      const bool is_it = from.empty() ? local.elements(d + 1, local.rank()) == behind && local[d] == x.dim(axis.dimension)
                                      : from[static_cast<std::size_t>(d)] == axis.dimension;
      if (is_it && (found < 0 || d == axis.dimension)) found = d;
    }
    require(found >= 0, "[{}] merges or cuts dimension {}, which is split; {}: {} to local shape {}", op, axis.dimension,
            no_split, x, local);
    result.global[found] = layout.global[axis.dimension];
    axis.dimension = found;
  }
  return std::make_shared<Layout>(std::move(result));
}

LayoutPtr within_axes_layout(std::string_view op, const Tensor& x, std::span<const int> axes, const Shape& local, bool linear) {
  Layout result = *x.layout();
  require(linear || !result.has(Placement::share), "[{}] of a share is not a share of the result; redistribute it first: {}", op,
          x);
  for (const int d : axes) {
    require(result.axis_of(d) < 0, "[{}] across dimension {}, which is split; {}: {}", op, d, no_split, x);
    result.global[d] = local[d];
  }
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace mpigrad
