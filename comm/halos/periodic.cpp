#include "comm/halos/periodic.h"

#include <algorithm>

#include "comm/distributed/local_parts.h"
#include "comm/halos/exchange.h"
#include "ops/array/shapes.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// The planes that a rank needs along a grid axis of several ranks: the last planes for the first rank, the first planes for the
// last rank, none for the others. Collective along the axis.
Tensor wrapped_planes(const Tensor& x, const Layout& layout, std::size_t axis, std::int64_t width) {
  const auto& grid = grid_of(layout);
  const std::vector along{static_cast<int>(axis)};
  const int dimension = layout.axes[axis].dimension;
  const auto n = layout.global[dimension];
  auto plan = std::make_shared<BoxPlan>();
  for (const int rank : grid.members(along)) {
    plan->have.push_back(layout.box(rank));
    auto& need = plan->need.emplace_back(layout.box(rank));
    need.begin[dimension] = need.end[dimension] = 0;
  }
  auto &first = plan->need.front(), &last = plan->need.back();
  first.begin[dimension] = n - width, first.end[dimension] = n, last.end[dimension] = width;
  return exchange(x, grid.along(along), plan);
}

// Pads one dimension. Updates `layout`, which x itself does not carry, to that of the result.
Tensor pad_dimension(const Tensor& x, int dimension, std::int64_t width, Layout* layout) {
  const int split = layout ? layout->axis_of(dimension) : -1;
  const auto axis = static_cast<std::size_t>(std::max(split, 0));
  Tensor y;
  if (split < 0 || layout->grid->extents[axis] == 1) {
    const auto n = x.dim(dimension);
    y = concatenate({slice(x, dimension, n - width, n), x, slice(x, dimension, 0, width)}, dimension);
  } else {
    const auto planes = wrapped_planes(x, *layout, axis, width);
    const bool is_first = layout->grid->coordinates(layout->grid->rank)[axis] == 0;
    y = is_first ? concatenate({planes, x}, dimension) : concatenate({x, planes}, dimension);
  }
  if (!layout) return y;
  layout->global[dimension] += 2 * width;
  if (split < 0) return y;
  auto& cuts = layout->axes[axis].cuts;
  for (std::size_t i = 1; i < cuts.size(); ++i) cuts[i] += i + 1 == cuts.size() ? 2 * width : width;
  return y;
}

}  // namespace

Tensor pad_periodic(const Tensor& x, std::int64_t width) {
  const auto extents = spatial::global_spatial(x);
  for (const auto extent : extents)
    require(width >= 0 && extent >= width, "[pad_periodic] {} planes of {}: {}", width, extent, x);
  if (width == 0) return x;
  std::shared_ptr<Layout> layout;
  if (x.layout()) layout = std::make_shared<Layout>(*x.layout());
  Tensor y = x.without_layout();
  for (int dimension = 1; dimension <= 3; ++dimension) y = pad_dimension(y, dimension, width, layout.get());
  return y.with_layout(layout);
}

Tensor roll(const Tensor& x, std::int64_t shift, int axis) {
  const int dimension = checked_dimension("roll", axis, x.rank());
  const int split = x.layout() ? x.layout()->axis_of(dimension) : -1;
  if (split < 0) return local::roll(x, shift, dimension);
  const auto& layout = *x.layout();
  const auto n = layout.global[dimension], by = n == 0 ? 0 : ((shift % n) + n) % n;
  if (by == 0) return x;
  const auto& grid = grid_of(layout);
  // Places below `by` read the end of x, the others its beginning.
  const auto read = [&](std::int64_t first, std::int64_t last, std::int64_t offset) {
    auto plan = std::make_shared<BoxPlan>();
    for (const int rank : grid.members({split})) {
      auto& need = plan->need.emplace_back(plan->have.emplace_back(layout.box(rank)));
      const auto begin = std::clamp(need.begin[dimension], first, last), end = std::clamp(need.end[dimension], first, last);
      need.begin[dimension] = begin + offset, need.end[dimension] = end + offset;
    }
    return exchange(x.without_layout(), grid.along({split}), plan);
  };
  return concatenate({read(0, by, n - by), read(by, n, -by)}, dimension).with_layout(x.layout());
}

Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes) {
  require(shifts.size() == axes.size(), "[roll] {} shifts for {} dimensions", shifts.size(), axes.size());
  Tensor y = x;
  for (std::size_t i = 0; i < axes.size(); ++i) y = roll(y, shifts[i], axes[i]);
  return y;
}

}  // namespace mpigrad
