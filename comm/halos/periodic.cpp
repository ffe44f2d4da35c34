#include "comm/halos/periodic.h"

#include <algorithm>

#include "comm/halos/exchange.h"
#include "ops/array/shapes.h"
#include "ops/views/views.h"

namespace mpigrad {

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
