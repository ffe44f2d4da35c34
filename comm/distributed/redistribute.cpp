#include "comm/distributed/redistribute.h"

#include <algorithm>

#include "comm/distributed/invariant.h"
#include "comm/halos/exchange.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

// True if rank `rank` is the first of the ranks that hold the same box and differ along `axes`: that rank sends the box.
bool sends(const Layout& layout, const std::vector<int>& axes, int rank) {
  const auto coordinates = layout.grid->coordinates(rank);
  return std::none_of(axes.begin(), axes.end(), [&](int a) {
    const auto i = static_cast<std::size_t>(a);
    return layout.axes[i].placement == Placement::replicated && coordinates[i] != 0;
  });
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
  BoxPlan plan;
  for (const int r : grid.members(axes)) {
    plan.have.push_back(from->box(r));
    plan.need.push_back(to->box(r));
    // A rank takes the elements that it holds itself locally; a rank with a copy of a box that another rank sends sends nothing.
    if (intersection(plan.have.back(), plan.need.back()) == plan.need.back()) plan.need.back().end = plan.need.back().begin;
    if (!sends(*from, axes, r)) plan.have.back().end = plan.have.back().begin;
  }
  const auto mine = static_cast<std::size_t>(group.rank());
  const auto has = from->box(), gets = to->box();
  const bool local = plan.need[mine].elements() == 0;
  const bool silent = !sends(*from, axes, grid.rank);
  Tensor own = silent ? Tensor({plan.have[mine].extents(), in[0].dtype()}, in[0].device()) : in[0];
  Tensor arriving = local ? Tensor({plan.need[mine].extents(), in[0].dtype()}, in[0].device()) : out[0];
  move_boxes(group, plan, own, arriving, false);
  if (local && out[0].raw() && gets.elements() > 0) copy_box(in[0], has, out[0], gets, gets);
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
