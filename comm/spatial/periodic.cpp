#include "comm/spatial/periodic.h"

#include "comm/spatial/exchange.h"
#include "comm/spatial/local_parts.h"
#include "ops/views.h"

namespace mpigrad {
namespace {

// Planes [begin, end) of a split dimension, for the rank at `place` along its grid axis; all others receive none.
Tensor planes_for(const Tensor& x, const Layout& layout, std::size_t axis, std::size_t place, std::int64_t begin,
                  std::int64_t end) {
  const auto& grid = grid_of(layout);
  const auto along = std::vector{static_cast<int>(axis)};
  const int dimension = layout.axes[axis].dimension;
  auto plan = std::make_shared<BoxPlan>();
  for (const int rank : grid.members(along)) {
    plan->have.push_back(layout.box(rank));
    auto& need = plan->need.emplace_back(layout.box(rank));
    need.begin[dimension] = begin, need.end[dimension] = plan->need.size() == place + 1 ? end : begin;
  }
  return exchange(x, grid.along(along), plan);
}

// One dimension. `layout`, which x itself does not carry, becomes that of the result.
Tensor pad_dimension(const Tensor& x, int dimension, std::int64_t width, Layout* layout) {
  const int split = layout ? layout->axis_of(dimension) : -1;
  if (split < 0) {
    if (layout) layout->global[dimension] += 2 * width;
    const auto n = x.dim(dimension);
    return concatenate({slice(x, dimension, n - width, n), x, slice(x, dimension, 0, width)}, dimension);
  }
  const auto axis = static_cast<std::size_t>(split);
  auto& cuts = layout->axes[axis].cuts;
  const auto n = layout->global[dimension];
  const auto low = planes_for(x, *layout, axis, 0, n - width, n);
  const auto high = planes_for(x, *layout, axis, cuts.size() - 2, 0, width);
  layout->global[dimension] += 2 * width;
  for (std::size_t i = 1; i < cuts.size(); ++i) cuts[i] += i + 1 == cuts.size() ? 2 * width : width;
  return concatenate({low, x, high}, dimension);
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

}  // namespace mpigrad
