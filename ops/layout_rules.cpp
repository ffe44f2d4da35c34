#include "ops/layout_rules.h"

#include <algorithm>
#include <utility>

#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/broadcast.h"

namespace mpigrad {
namespace {

const char* no_split = "redistribute it so that the dimension is whole on every rank";

// One operand's placement along a grid axis; its dimension is counted from the right, as shapes broadcast.
struct Placed {
  Placement placement;
  int from_right;
  const std::vector<std::int64_t>* cuts;
};

Placed placed(const Tensor& x, std::size_t axis) {
  const auto& at = x.layout()->axes[axis];
  return {at.placement, at.dimension - x.rank(), &at.cuts};
}

// A shape as its split dimensions, of extents `sizes`, and the numbers of elements before, between and after them.
struct Segments {
  std::vector<std::int64_t> between, sizes;
};
using Places = std::vector<std::vector<int>>;

// All ways to find the segments' split dimensions in `shape`, those at the front first.
void find_places(const Segments& segments, const Shape& shape, int d, std::int64_t before, std::vector<int>& chosen,
                 Places& result) {
  const auto k = chosen.size();
  if (d == shape.rank()) {
    if (k == segments.sizes.size() && before == segments.between[k]) result.push_back(chosen);
    return;
  }
  if (k < segments.sizes.size() && shape[d] == segments.sizes[k] && before == segments.between[k]) {
    chosen.push_back(d);
    find_places(segments, shape, d + 1, 1, chosen, result);
    chosen.pop_back();
  }
  find_places(segments, shape, d + 1, before * shape[d], chosen, result);
}
Places places(const Segments& segments, const Shape& shape) {
  Places result;
  std::vector<int> chosen;
  find_places(segments, shape, 0, 1, chosen, result);
  return result;
}

}  // namespace

LayoutPtr elementwise_layout(std::string_view op, Inputs in, Elementwise kind) {
  const Tensor* model = nullptr;
  Shape global;
  bool first = true;
  for (const auto& x : in) {
    if (!x.layout()) {
      if (x.elements() == 1 && x.is_constant()) continue;
      fail("[{}] mixes a distributed tensor with a local one; {}: {}, {}", op,
           detail::parameter_hint(in, "give it a layout (replicated_layout() if it is replicated)"), in.front(), in.back());
    }
    require(!model || model->layout()->grid == x.layout()->grid, "[{}] operands are on different process grids: {}, {}", op,
            in.front(), in.back());
    if (!model || x.rank() > model->rank()) model = &x;
    global = first ? x.layout()->global : broadcast_shapes(op, global, x.layout()->global);
    first = false;
  }
  Layout result{model->layout()->grid, global, model->layout()->axes};
  const bool any_partial =
      std::any_of(in.begin(), in.end(), [](const Tensor& x) { return x.layout() && x.layout()->has(Placement::partial); });
  for (std::size_t a = 0; a < result.axes.size(); ++a) {
    Placement placement = Placement::replicated;
    int partial_sums = 0;
    Placed split{Placement::replicated, 0, nullptr};
    for (const auto& x : in)
      if (x.layout() && x.layout()->axes[a].placement == Placement::split) split = placed(x, a);
    for (const auto& x : in) {
      if (!x.layout()) {
        require(kind == Elementwise::product || kind == Elementwise::quotient || !any_partial,
                "[{}] adds a constant to a partial sum, once per rank; write once() around it: {}, {}", op, in.front(),
                in.back());
        continue;
      }
      const auto here = placed(x, a);
      if (here.placement == Placement::partial) ++partial_sums;
      if (split.cuts && here.placement == Placement::replicated) {
        // Global extents: a block of one index does not broadcast.
        const bool broadcasts = -split.from_right > x.rank() || x.layout()->global[x.rank() + split.from_right] == 1;
        if (!x.is_constant() || !broadcasts)
          fail("[{}] one operand is split over grid axis {}, the other is replicated over its ranks; {}: {}, {}", op,
               result.grid->names[a], detail::parameter_hint(in, "replicate it"), in.front(), in.back());
      } else if (split.cuts) {
        require(here.placement == Placement::split && here.from_right == split.from_right && *here.cuts == *split.cuts,
                "[{}] operands are laid out differently over grid axis {}; redistribute one: {}, {}", op, result.grid->names[a],
                in.front(), in.back());
      }
    }
    if (split.cuts) {
      placement = Placement::split;
    } else if (partial_sums > 0) {
      placement = Placement::partial;
      const auto operands = static_cast<int>(in.size());
      switch (kind) {
        case Elementwise::nonlinear:
          // total() gives a number, through which no gradient flows.
          fail("[{}] of a partial sum is not a partial sum of the result; make it whole with {} first: {}", op,
               Tape::recording() ? "redistribute() to a replicated layout" : "redistribute() or total()", in.front());
        case Elementwise::linear:
          require(partial_sums == operands,
                  "[{}] adds a replicated value to a partial sum, once per rank; write once() around it: {}, {}", op, in.front(),
                  in.back());
          break;
        case Elementwise::product:
          require(partial_sums == 1,
                  "[{}] is a product of partial sums, which is not a partial sum of the product; redistribute one first: {}, {}",
                  op, in.front(), in.back());
          break;
        case Elementwise::quotient:
          require(is_differentiable(in.front().dtype()),
                  "[{}] of integers rounds each rank's part of a partial sum; redistribute it first: {}, {}", op, in.front(),
                  in.back());
          require(partial_sums == 1 && in.front().layout() && in.front().layout()->axes[a].placement == Placement::partial,
                  "[{}] divides by a partial sum; redistribute it first: {}, {}", op, in.front(), in.back());
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
    require(is_sum || axis.placement != Placement::partial,
            "[{}] of a partial sum is not a partial sum of the result; redistribute it first: {}", op, x);
    if (axis.placement != Placement::split) continue;
    if (std::find(axes.begin(), axes.end(), axis.dimension) != axes.end()) {
      require(is_sum, "[{}] over dimension {}, which is split; {}: {}", op, axis.dimension, no_split, x);
      axis = {Placement::partial, -1, {}};
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
  std::vector<std::size_t> split;  // grid axes, in the order of the dimensions that they split
  for (std::size_t a = 0; a < layout.axes.size(); ++a)
    if (layout.axes[a].placement == Placement::split) split.push_back(a);
  if (split.empty()) return std::make_shared<Layout>(Layout{layout.grid, local, layout.axes});
  const auto dimension = [&](std::size_t k) { return layout.axes[split[k]].dimension; };
  std::sort(split.begin(), split.end(), [&](auto a, auto b) { return layout.axes[a].dimension < layout.axes[b].dimension; });

  // The split dimensions survive if they are found in the result with as many elements between them.
  Places found(1);
  if (from.empty()) {
    Segments segments;
    int next = 0;
    for (std::size_t k = 0; k < split.size(); next = dimension(k) + 1, ++k) {
      segments.between.push_back(x.shape().elements(next, dimension(k)));
      segments.sizes.push_back(x.dim(dimension(k)));
    }
    segments.between.push_back(x.shape().elements(next, x.rank()));
    found = places(segments, local);

    // A block of one index may fit several dimensions. This is only allowed if it does on all ranks: for every combination of
    // blocks with one index and with another number of indices, the places must be the same.
    for (std::size_t choices = 0; choices < std::size_t{1} << split.size(); ++choices)
      for (const auto& place : found) {
        Shape other = local;
        Segments theirs = segments;
        bool exists = true;
        for (std::size_t k = 0; k < split.size(); ++k) {
          const auto& cuts = layout.axes[split[k]].cuts;
          const bool one = choices >> k & 1;
          std::size_t r = 1;
          while (r < cuts.size() && (cuts[r] - cuts[r - 1] == 1) != one) ++r;
          exists = exists && r < cuts.size();
          if (exists) theirs.sizes[k] = other[place[k]] = cuts[r] - cuts[r - 1];
        }
        require(!exists || places(theirs, other) == found,
                "[{}] does not tell on every rank which dimension is the split one, because a block of one index looks like a "
                "dimension of extent 1; use squeeze(), unsqueeze() or flatten_from(), or redistribute it: {} to local shape {}",
                op, x, local);
      }
  } else {
    for (std::size_t k = 0; k < split.size(); ++k) {
      const auto at = std::find(from.begin(), from.end(), dimension(k));
      if (at == from.end()) found.clear();
      else if (!found.empty()) found[0].push_back(static_cast<int>(at - from.begin()));
    }
  }

  const auto survives = [&](std::size_t k) {
    if (!from.empty()) return std::find(from.begin(), from.end(), dimension(k)) != from.end();
    const Segments alone{{x.shape().elements(0, dimension(k)), x.shape().elements(dimension(k) + 1, x.rank())},
                         {x.dim(dimension(k))}};
    return !places(alone, local).empty();
  };
  if (found.empty()) {
    std::size_t lost = 0;
    while (lost + 1 < split.size() && survives(lost)) ++lost;
    if (survives(lost)) lost = 0;
    fail("[{}] merges or cuts dimension {}, which is split; {}: {} to local shape {}", op, dimension(lost), no_split, x, local);
  }

  // If blocks of one index leave a choice on all ranks, as many dimensions as possible keep their places.
  const auto kept = [&](const std::vector<int>& place) {
    std::size_t count = 0;
    for (std::size_t k = 0; k < place.size(); ++k) count += place[k] == dimension(k) ? 1 : 0;
    return count;
  };
  const auto& best =
      *std::max_element(found.begin(), found.end(), [&](const auto& a, const auto& b) { return kept(a) < kept(b); });
  Layout result{layout.grid, local, layout.axes};
  for (std::size_t k = 0; k < split.size(); ++k) {
    result.global[best[k]] = layout.global[dimension(k)];
    result.axes[split[k]].dimension = best[k];
  }
  return std::make_shared<Layout>(std::move(result));
}

LayoutPtr within_axes_layout(std::string_view op, const Tensor& x, std::span<const int> axes, const Shape& local, bool linear) {
  Layout result = *x.layout();
  require(linear || !result.has(Placement::partial),
          "[{}] of a partial sum is not a partial sum of the result; redistribute it first: {}", op, x);
  for (const int d : axes) {
    require(result.axis_of(d) < 0, "[{}] across dimension {}, which is split; {}: {}", op, d, no_split, x);
    result.global[d] = local[d];
  }
  return std::make_shared<Layout>(std::move(result));
}

void require_whole(const char* op, const Tensor& x, std::span<const int> axes) {
  if (!x.layout()) return;
  for (const int axis : axes) {
    const int d = checked_dimension(op, axis, x.rank());
    require(x.layout()->axis_of(d) < 0, "[{}] along dimension {}, which is split; {}: {}", op, d, no_split, x);
  }
}

}  // namespace mpigrad
