#include "comm/halos/ghosts.h"

#include <algorithm>
#include <memory>

#include "ops/views/views.h"

namespace mpigrad {
namespace {

struct Ghosts {
  Tensor block;
  Shape shape;  // of the part without ghost planes
  std::array<std::int64_t, 3> low{}, width{};
};

const Ghosts* ghosts_of(const Tensor& x) {
  if (!x.storage() || !x.is_constant() || x.rank() != 5) return nullptr;
  const auto* ghosts = static_cast<const Ghosts*>(x.storage()->beside().get());
  return ghosts && ghosts->shape == x.shape() ? ghosts : nullptr;
}

}  // namespace

Tensor with_ghosts(const Tensor& block, const std::array<std::int64_t, 3>& low, const std::array<std::int64_t, 3>& high,
                   const std::array<std::int64_t, 3>& width) {
  Untaped scope;
  auto begin = Shape{0, low[0], low[1], low[2], 0}, end = block.shape();
  for (int d = 0; d < 3; ++d) {
    const auto i = static_cast<std::size_t>(d);
    end[d + 1] -= high[i];
    require(low[i] >= 0 && high[i] >= 0 && low[i] <= width[i] && high[i] <= width[i] && begin[d + 1] <= end[d + 1],
            "[ghosts] {} and {} planes of at most {} around {}", low[i], high[i], width[i], block);
  }
  // A copy with its own memory, even if there are no ghost planes: the ghosts are attached to the copy's storage, not to the
  // block's.
  const auto x = constant(slice(block, begin, end));
  if (x.storage() && x.storage() != block.storage())
    x.storage()->keep_beside(std::make_shared<const Ghosts>(Ghosts{constant(block), x.shape(), low, width}));
  return x;
}

namespace spatial {

bool ghosts_cover(const Tensor& x, const WindowedPlan& plan) {
  const auto* ghosts = ghosts_of(x);
  if (!ghosts || !plan.moves) return false;
  // All ranks of the group get the same result. A rank that needs nothing along one axis needs nothing.
  const auto none = [](const AxisBlocks& axis) {
    return std::all_of(axis.ranges.begin(), axis.ranges.end(), [](const Range& range) { return range.size() == 0; });
  };
  if (std::any_of(plan.need.begin(), plan.need.end(), none)) return true;
  for (std::size_t a = 0; a < plan.axes.size(); ++a) {
    const auto width = ghosts->width[static_cast<std::size_t>(plan.have[a].dimension) - 1];
    for (std::size_t i = 0; i < plan.have[a].ranges.size(); ++i) {
      const auto &have = plan.have[a].ranges[i], &need = plan.need[a].ranges[i];
      if (need.size() > 0 && (have.size() == 0 || need.begin < have.begin - width || need.end > have.end + width)) return false;
    }
  }
  return true;
}

namespace {

// x's window from its ghost planes; requires ghosts_cover(x, plan).
Tensor from_ghosts(const Tensor& x, const WindowedPlan& plan) {
  const auto& ghosts = *ghosts_of(x);
  const auto &have = plan.boxes->have, &need = plan.boxes->need;
  Shape begin(std::vector<std::int64_t>(5)), end = ghosts.block.shape();
  for (int d = 1; d < 4; ++d) {
    const auto low = ghosts.low[static_cast<std::size_t>(d) - 1];
    begin[d] = need.elements() == 0 ? 0 : low + need.begin[d] - have.begin[d];
    end[d] = begin[d] + need.end[d] - need.begin[d];
  }
  return slice(ghosts.block, begin, end);
}

}  // namespace

Tensor windowed_input(const Tensor& x, const WindowedPlan& plan) {
  if (ghosts_cover(x, plan)) return from_ghosts(x, plan);
  const auto local = x.without_layout();
  // Boxes of a layout do not overlap, so that the check in exchange() is not needed.
  return plan.moves ? apply(ops::Exchange{plan.group, plan.boxes}, {local}) : local;
}

}  // namespace spatial
}  // namespace mpigrad
