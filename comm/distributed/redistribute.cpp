#include "comm/distributed/redistribute.h"

#include <algorithm>
#include <numeric>

#include "comm/distributed/invariant.h"
#include "comm/halos/exchange.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

// The blocks of a layout along these axes of its grid. With `senders`, ranks that hold a copy of another one's block have
// nothing: the first of the ranks that hold it sends it.
std::vector<AxisBlocks> blocks_along(const Layout& layout, const std::vector<int>& axes, bool senders) {
  std::vector<AxisBlocks> result;
  for (const int a : axes) {
    const auto& axis = layout.axes[static_cast<std::size_t>(a)];
    const bool split = axis.placement == Placement::split;
    auto& made = result.emplace_back(AxisBlocks{split ? axis.dimension : -1, {}});
    for (int i = 0; i < layout.grid->extents[static_cast<std::size_t>(a)]; ++i) {
      const auto at = static_cast<std::size_t>(i);
      made.ranges.push_back(split ? Range{axis.cuts[at], axis.cuts[at + 1]} : Range{0, senders && i > 0 ? 0 : 1});
    }
  }
  return result;
}

bool contains(const Box& outer, const Box& inner) { return intersection(outer, inner) == inner; }

// The boxes of this rank of the group along `axes` of the grid of `from`, in which ranks differ by what they have and need.
RankBoxes boxes_between(const Layout& from, const Layout& to, const std::vector<int>& axes) {
  const auto& grid = *from.grid;
  const auto mine = grid.coordinates(grid.rank);
  // The grid's number of a rank of the group.
  const auto rank_of = [&](int member) {
    auto at = mine;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const auto a = static_cast<std::size_t>(axes[i]);
      at[a] = member % grid.extents[a], member /= grid.extents[a];
    }
    int rank = 0;
    for (std::size_t a = 0; a < at.size(); ++a) rank = rank * grid.extents[a] + at[a];
    return rank;
  };
  RankBoxes boxes{from.box(), to.box(), {}, {}};
  std::vector<int> all_axes(to.axes.size());
  std::iota(all_axes.begin(), all_axes.end(), 0);
  // Two grids are over the same ranks, and then all axes of both differ.
  const auto& axes_of_to = from.grid == to.grid ? axes : all_axes;
  const bool copy = std::any_of(axes.begin(), axes.end(), [&](int a) {
    const auto i = static_cast<std::size_t>(a);
    return from.axes[i].placement == Placement::replicated && mine[i] != 0;
  });
  if (copy) boxes.have.end = boxes.have.begin;
  // A rank takes the elements that it holds itself locally.
  if (contains(from.box(), boxes.need)) boxes.need.end = boxes.need.begin;
  boxes.sent = parts_of(boxes.have, blocks_along(to, axes_of_to, false));
  std::erase_if(boxes.sent, [&](const BoxPart& part) {
    const int rank = rank_of(part.peer);
    return contains(from.box(rank), to.box(rank));
  });
  boxes.received = parts_of(boxes.need, blocks_along(from, axes, true));
  return boxes;
}

}  // namespace

Types Redistribute::infer(Inputs in) const {
  if (in[0].shape() != from->box().extents())
    fail("[redistribute] the local part of {} is {}: {}", to_string(*from), from->box().extents(), in[0]);
  return {{to->box().extents(), in[0].dtype()}};
}

void Redistribute::run(Inputs in, Outputs out) const {
  // A scalar is already the same on every rank, and has no dimension along which a box could be empty.
  if (in[0].rank() == 0) {
    if (in[0].raw()) copy_box(in[0], from->box(), out[0], to->box(), to->box());
    return;
  }
  // Nothing moves along an axis on which both layouts agree: each copy, or each block, is rearranged separately.
  const auto& grid = grid_of(*from);
  std::vector<int> axes;
  for (int a = 0; a < grid.axes(); ++a) {
    const auto i = static_cast<std::size_t>(a);
    if (from->grid != to->grid || !(from->axes[i] == to->axes[i])) axes.push_back(a);
  }
  const auto group = grid.along(axes);
  const auto boxes = boxes_between(*from, *to, axes);
  const auto gets = to->box();
  const bool local = boxes.need.elements() == 0, silent = boxes.have.elements() == 0;
  Tensor own = silent ? Tensor({boxes.have.extents(), in[0].dtype()}, in[0].device()) : in[0];
  Tensor arriving = local ? Tensor({boxes.need.extents(), in[0].dtype()}, in[0].device()) : out[0];
  move_boxes(group, boxes, own, arriving, false);
  if (local && out[0].raw() && gets.elements() > 0) copy_box(in[0], from->box(), out[0], gets, gets);
}

}  // namespace ops

Tensor redistribute(const Tensor& x, const LayoutPtr& to) {
  require(x.layout() && to, "[redistribute] the tensor and the target need layouts: {}", x);
  if (x.layout()->grid != to->grid)  // in a pipeline: from an earlier stage
    if (const auto brought = to->grid->brought(x); brought.layout()->grid == to->grid) return redistribute(brought, to);
  if (x.layout()->global != to->global) fail("[redistribute] global shapes differ: {} to {}", x, to_string(*to));
  require(x.layout()->grid->ranks() == to->grid->ranks(), "[redistribute] layouts over {} and {} ranks",
          x.layout()->grid->ranks(), to->grid->ranks());
  if (!(to->grid == x.layout()->grid || !to->has(Placement::partial)))
    fail("[redistribute] only once() makes a partial sum: {} to {}", x, to_string(*to));
  if (*x.layout() == *to) return x;
  Layout from = *x.layout();
  Tensor local = x.without_layout();

  // Partial sums first, axis by axis.
  for (std::size_t a = 0; a < from.axes.size(); ++a) {
    if (from.axes[a].placement != Placement::partial) {
      if (!(to->grid != from.grid || to->axes[a].placement != Placement::partial))
        fail("[redistribute] only once() makes a partial sum: {} to {}", x, to_string(*to));
      continue;
    }
    if (to->grid == from.grid && to->axes[a].placement == Placement::partial) continue;
    const auto group = grid_of(from).along({static_cast<int>(a)});
    const bool scatters =
        to->grid == from.grid && to->axes[a].placement == Placement::split && from.axis_of(to->axes[a].dimension) < 0;
    if (scatters) {
      Rows rows;
      for (std::size_t i = 1; i < to->axes[a].cuts.size(); ++i) rows.push_back(to->axes[a].cuts[i] - to->axes[a].cuts[i - 1]);
      local = reduce_scatter(local, group, rows, to->axes[a].dimension);
      from.axes[a] = to->axes[a];
    } else {
      local = allreduce_invariant(local, group);
      from.axes[a] = {Placement::replicated, -1, {}};
    }
  }
  if (from == *to) return local.with_layout(to);
  if (from.has(Placement::partial))
    fail("[redistribute] a partial sum along one axis cannot be rearranged along others; make it whole first: {} to {}", x,
         to_string(*to));
  return mpigrad::apply(ops::Redistribute{std::make_shared<Layout>(from), to}, {local}).with_layout(to);
}

Tensor gather_all(const Tensor& x) {
  require(x.layout() != nullptr, "[gather_all] needs a distributed tensor: {}", x);
  Layout layout = *x.layout();
  for (auto& axis : layout.axes) axis = {Placement::replicated, -1, {}};
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

}  // namespace mpigrad
