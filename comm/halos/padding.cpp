#include "comm/halos/padding.h"

#include <array>
#include <tuple>
#include <utility>

#include "comm/distributed/redistribute.h"
#include "comm/halos/exchange.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// One dimension that a grid axis splits, and the two ends of its padding.
struct SplitEnds {
  int axis;
  PaddedEnd low, high;
  std::size_t first = 0, last = 0;  // the coordinates of the first and the last rank that have elements

  SplitEnds(const Layout& layout, int split, PaddedEnd of_low, PaddedEnd of_high)
      : axis(split), low(of_low), high(of_high), last(cuts(layout).size() - 2) {
    const auto& at = cuts(layout);
    const auto n = at.back();
    while (first < last && at[first + 1] == 0) ++first;
    while (last > first && at[last] == n) --last;
  }
  const std::vector<std::int64_t>& cuts(const Layout& layout) const { return layout.axes[static_cast<std::size_t>(axis)].cuts; }
  // True if elements of one rank are copied to another.
  bool moves() const { return first != last && (low.copies() || high.copies()); }
  std::size_t coordinate(const Layout& layout) const {
    return static_cast<std::size_t>(layout.grid->coordinates(layout.grid->rank)[static_cast<std::size_t>(axis)]);
  }
  // The layout with both ends.
  void widen(Layout& layout) const {
    auto& at = layout.axes[static_cast<std::size_t>(axis)].cuts;
    for (std::size_t i = first + 1; i < at.size(); ++i) at[i] += i <= last ? low.count : low.count + high.count;
    layout.global[low.dimension] += low.count + high.count;
  }
  // The exchange that brings the copied elements to the two ranks at the ends; `layout` is without the ends.
  BoxPlanPtr plan(const Layout& layout, const Tensor& x) const {
    const int d = low.dimension;
    auto result = std::make_shared<BoxPlan>();
    for (const int rank : grid_of(layout).members({axis})) {
      result->have.push_back(layout.box(rank));
      auto& need = result->need.emplace_back(layout.box(rank));
      need.begin[d] = need.end[d] = 0;
    }
    const auto n = layout.global[d];
    std::tie(result->need[first].begin[d], result->need[first].end[d]) = low.source(n, x);
    std::tie(result->need[last].begin[d], result->need[last].end[d]) = high.source(n, x);
    return result;
  }
};

Tensor joined_ends(const Tensor& low, const Tensor& x, const Tensor& high, int dimension) {
  std::vector<Tensor> parts;
  for (const auto& part : {low, x, high})
    if (part) parts.push_back(part);
  return parts.size() == 1 ? x : concatenate(parts, dimension);
}

// Pads one split dimension of x, which does not carry its layout, and widens the layout.
Tensor pad_split(const Tensor& x, const SplitEnds& ends, Layout& layout) {
  const auto &low = ends.low, &high = ends.high;
  const int d = low.dimension;
  const auto at = ends.coordinate(layout);
  const auto n = layout.global[d];
  Tensor planes;
  if (ends.moves()) planes = exchange(x, grid_of(layout).along({ends.axis}), ends.plan(layout, x));
  const auto made = [&](const PaddedEnd& end, std::size_t owner) {
    if (at != owner || end.count == 0) return Tensor();
    if (planes) return end.from(planes);
    const auto [begin, stop] = end.source(n, x);
    return end.from(slice(x, d, begin, stop));
  };
  const auto y = joined_ends(made(low, ends.first), x, made(high, ends.last), d);
  ends.widen(layout);
  return y;
}

// The adjoint of pad_split(); `layout` is that of the result, without the ends.
Tensor unpad_split(const Tensor& y, const SplitEnds& ends, const Layout& layout) {
  const auto &low = ends.low, &high = ends.high;
  const int d = low.dimension;
  const auto at = ends.coordinate(layout);
  const auto n = layout.global[d];
  const auto before = at == ends.first ? low.count : 0, after = at == ends.last ? high.count : 0;
  const auto whole = y.dim(d);
  Tensor x = slice(y, d, before, whole - after);
  const auto of_low = [&] { return low.back(slice(y, d, 0, before)); };
  const auto of_high = [&] { return high.back(slice(y, d, whole - after, whole)); };
  if (ends.moves()) {
    const auto plan = ends.plan(layout, y);
    Tensor planes = slice(y, d, 0, 0);
    if (before > 0 && low.copies()) planes = of_low();
    if (after > 0 && high.copies()) planes = of_high();
    const auto comm = grid_of(layout).along({ends.axis});
    return x + mpigrad::apply(ops::ReturnBoxes{comm, std::make_shared<const RankBoxes>(boxes_of(*plan, comm.rank()))}, {planes});
  }
  const auto add = [&](const PaddedEnd& end, const Tensor& planes) {
    const auto [begin, stop] = end.source(n, y);
    Shape zeros_before{0, 0, 0, 0, 0}, zeros_after = zeros_before;
    zeros_before[d] = begin, zeros_after[d] = n - stop;
    x = x + pad(planes, zeros_before, zeros_after);
  };
  if (before > 0 && low.copies()) add(low, of_low());
  if (after > 0 && high.copies()) add(high, of_high());
  return x;
}

Padding only(const Padding& p, std::size_t i) {
  Padding result = 0;
  result.low[i] = p.low[i], result.high[i] = p.high[i], result.low_mode = p.low_mode, result.high_mode = p.high_mode;
  return result;
}

}  // namespace

Tensor pad(const Tensor& x, const Padding& padding) {
  if (!x.layout()) return local::pad(x, padding);
  require(x.rank() == 5, "[pad] needs [N, D, H, W, C]: {}", x);
  auto layout = std::make_shared<Layout>(*x.layout());
  Tensor y = x.without_layout();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto [low, high] = ends_of(padding, i, x);
    const int split = layout->axis_of(low.dimension);
    if (split < 0) {
      y = local::pad(y, only(padding, i));
      layout->global[low.dimension] += low.count + high.count;
    } else if (low.count + high.count > 0) {
      y = pad_split(y, SplitEnds(*layout, split, low, high), *layout);
    }
  }
  return y.with_layout(layout);
}

Tensor spatial::with_copies(const Tensor& x, Padding& padding) {
  const auto whole = std::exchange(padding, without_copies(padding));
  return adds_copies(whole) ? pad(x, copies_of(whole)) : x;
}

Tensor spatial::unpad(const Tensor& y, const Padding& padding, const LayoutPtr& layout) {
  if (!layout) return local::unpad(y, padding);
  // The layouts after each dimension, from that of the result on.
  std::array<std::shared_ptr<const Layout>, 4> layouts{layout};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto [low, high] = ends_of(padding, i, y);
    auto wider = std::make_shared<Layout>(*layouts[i]);
    const int split = wider->axis_of(low.dimension);
    if (split < 0) wider->global[low.dimension] += low.count + high.count;
    else SplitEnds(*wider, split, low, high).widen(*wider);
    layouts[i + 1] = wider;
  }
  Tensor x = (*y.layout() == *layouts[3] ? y : redistribute(y, layouts[3])).without_layout();
  for (std::size_t i = 3; i-- > 0;) {
    const auto [low, high] = ends_of(padding, i, y);
    if (low.count + high.count == 0) continue;
    const int split = layout->axis_of(low.dimension);
    x = split < 0 ? local::unpad(x, only(padding, i)) : unpad_split(x, SplitEnds(*layouts[i], split, low, high), *layouts[i]);
  }
  return x.with_layout(layout);
}

}  // namespace mpigrad
