#include "comm/fft/transposing.h"

#include <algorithm>

#include "comm/distributed/redistribute.h"

namespace mpigrad {
namespace {

bool contains(const std::vector<int>& axes, int d) { return std::find(axes.begin(), axes.end(), d) != axes.end(); }

// The grid axis that splits dimension d over several ranks, or -1.
int split_over(const Layout& layout, int d) {
  const int a = layout.axis_of(d);
  return a >= 0 && layout.axes[static_cast<std::size_t>(a)].cuts.size() > 2 ? a : -1;
}

// True if every rank has the same block in both: they differ along grid axes of one rank only.
bool same_blocks(const Layout& a, const Layout& b) {
  if (a.grid != b.grid || !(a.global == b.global)) return false;
  for (std::size_t i = 0; i < a.axes.size(); ++i)
    if (a.grid->extents[i] > 1 && !(a.axes[i] == b.axes[i])) return false;
  return true;
}

}  // namespace

Tensor Transposing::run(Tensor x, const std::function<Tensor(const Tensor&, std::size_t first, std::size_t last)>& part) const {
  for (std::size_t done = 0; done < order_.size();) {
    std::size_t end = done;
    while (end < order_.size() && split_over(*x.layout(), order_[end]) < 0) ++end;
    if (end > done) x = part(x, done, end), done = end;
    else x = redistribute(x, moved(x, done));
  }
  if (!wanted_) return x;
  return same_blocks(*x.layout(), *wanted_) ? x.with_layout(wanted_) : redistribute(x, wanted_);
}

// The layout of x in which the grid axis that splits dimension order[done] splits another one.
LayoutPtr Transposing::moved(const Tensor& x, std::size_t done) const {
  Layout layout = *x.layout();
  const int d = order_[done];
  const auto a = static_cast<std::size_t>(split_over(layout, d));
  const int parts = layout.grid->extents[a];
  const int to = free_dimension(x, done, a, parts);
  if (to < 0)
    fail(
        "[{}] dimension {} is split over grid axis {}, and no other dimension is left to split instead; redistribute it to "
        "pencils, with one of the transformed dimensions whole: {}",
        op_, d, layout.grid->names[a], x);
  layout.axes[a] = {Placement::split, to, balanced_cuts(layout.global[to], parts)};
  if (wanted_ && wanted_->grid == layout.grid && wanted_->axes[a].placement == Placement::split &&
      wanted_->axes[a].dimension == to && wanted_->global[to] == layout.global[to])
    layout.axes[a].cuts = wanted_->axes[a].cuts;
  return std::make_shared<Layout>(std::move(layout));
}

// Preferred are the dimension that the wanted layout splits, transformed dimensions, the last one first, then the longest
// dimension that is not to be transformed and has a part for each rank, then the dimension transformed last. If there is none
// of these, some ranks get no part of the longest dimension. All on one rank is no choice.
int Transposing::free_dimension(const Tensor& x, std::size_t done, std::size_t a, int parts) const {
  const Layout& layout = *x.layout();
  const auto is_free = [&](int d) { return layout.axis_of(d) < 0; };
  const auto is_pending = [&](int d) {
    return std::find(order_.begin() + static_cast<std::ptrdiff_t>(done), order_.end(), d) != order_.end();
  };
  if (wanted_ && wanted_->axes[a].placement == Placement::split) {
    const int d = wanted_->axes[a].dimension;
    if (is_free(d) && !is_pending(d)) return d;
  }
  for (std::size_t i = done; i-- > 0;)
    if (is_free(order_[i])) return order_[i];
  int longest = -1;
  for (int d = 0; d < x.rank(); ++d)
    if (is_free(d) && !contains(order_, d) && layout.global[d] > 1 && (longest < 0 || layout.global[d] > layout.global[longest]))
      longest = d;
  if (longest >= 0 && layout.global[longest] >= parts) return longest;
  for (std::size_t i = order_.size(); i-- > done;)
    if (is_free(order_[i])) return order_[i];
  return longest;
}

std::vector<int> transformed_axes(const char* op, const Tensor& x, const std::vector<int>& axes) {
  require(!axes.empty(), "[{}] name the dimensions to transform: {}", op, x);
  std::vector<int> result;
  for (const int axis : axes) {
    result.push_back(checked_dimension(op, axis, x.rank()));
    require(std::count(result.begin(), result.end(), result.back()) == 1, "[{}] dimension {} is named twice: {}", op, axis, x);
    require(global_shape(x)[result.back()] >= 1, "[{}] dimension {} has no elements: {}", op, axis, x);
  }
  return result;
}

}  // namespace mpigrad
