#include "framework/tensor/layout.h"

#include <algorithm>

#include "framework/base/joined.h"

namespace mpigrad {

Shape Box::extents() const {
  Shape result;
  for (int i = 0; i < begin.rank(); ++i) result.push_back(std::max<std::int64_t>(0, end[i] - begin[i]));
  return result;
}

Box intersection(const Box& a, const Box& b) {
  Box result = a;
  for (int i = 0; i < a.begin.rank(); ++i) {
    result.begin[i] = std::max(a.begin[i], b.begin[i]);
    result.end[i] = std::max(result.begin[i], std::min(a.end[i], b.end[i]));
  }
  return result;
}

std::string to_string(const Box& box) { return fmt::format("{} to {}", box.begin, box.end); }

std::vector<std::int64_t> balanced_cuts(std::int64_t n, int parts) {
  std::vector<std::int64_t> cuts(static_cast<std::size_t>(parts) + 1);
  for (int i = 0; i <= parts; ++i) cuts[static_cast<std::size_t>(i)] = n / parts * i + std::min<std::int64_t>(i, n % parts);
  return cuts;
}

int GridShape::ranks() const {
  int product = 1;
  for (int extent : extents) product *= extent;
  return product;
}

std::vector<int> GridShape::coordinates(int rank) const {
  std::vector<int> result(extents.size());
  for (std::size_t i = extents.size(); i-- > 0;) result[i] = rank % extents[i], rank /= extents[i];
  return result;
}

Box Layout::box(int rank) const {
  Box result{global, global};
  for (auto& begin : result.begin) begin = 0;
  // Computes the coordinates one by one, without a vector: planners ask for thousands of boxes.
  for (std::size_t a = grid->extents.size(); a-- > 0;) {
    const int extent = grid->extents[a];
    const auto at = static_cast<std::size_t>(rank % extent);
    rank /= extent;
    if (a >= axes.size() || axes[a].placement != Placement::split) continue;
    result.begin[axes[a].dimension] = axes[a].cuts[at];
    result.end[axes[a].dimension] = axes[a].cuts[at + 1];
  }
  return result;
}

bool Layout::has(Placement placement) const {
  return std::any_of(axes.begin(), axes.end(), [&](const auto& axis) { return axis.placement == placement; });
}

int Layout::axis_of(int dimension) const {
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].placement == Placement::split && axes[a].dimension == dimension) return static_cast<int>(a);
  return -1;
}

std::vector<int> Layout::varying_axes() const {
  std::vector<int> result;
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].placement != Placement::replicated) result.push_back(static_cast<int>(a));
  return result;
}

std::string to_string(const Layout& layout) {
  std::string text = to_string(layout.global);
  for (std::size_t a = 0; a < layout.axes.size(); ++a) {
    const auto& axis = layout.axes[a];
    text += a == 0 ? " " : ", ";
    text += layout.grid->names[a] + ": ";
    if (axis.placement == Placement::split) text += fmt::format("split dim {} at {}", axis.dimension, joined(axis.cuts, "|"));
    else text += axis.placement == Placement::replicated ? "replicated" : "partial sum";
  }
  return text;
}

}  // namespace mpigrad
