#include "models/evaluate/segmentation_metrics.h"

#include <algorithm>

#include "framework/base/error.h"

namespace mpigrad::segmentation {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void require_labels(const char* op, const char* name, std::span<const std::int32_t> labels, std::int64_t classes) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < classes, "[{}] labels are in [0, {}): {} {} is {}", op, classes, name, i, labels[i]);
}

void require_volume(const char* op, const char* name, std::span<const std::int32_t> labels, const Shape& extents) {
  require(extents.rank() == 3, "[{}] extents are [D, H, W], not {}", op, extents);
  require(static_cast<std::int64_t>(labels.size()) == extents.elements(), "[{}] {} has {} labels for the cells of {}", op, name,
          labels.size(), extents);
}

// The coordinates of a cell along D, H, W.
std::array<std::int64_t, 3> position(const Shape& extents, std::int64_t cell) {
  const auto row = cell / extents[2];
  return {row / extents[1], row % extents[1], cell % extents[2]};
}

// Cells [first, end) along D, H, W.
struct Bounds {
  std::array<std::int64_t, 3> first, end{};

  explicit Bounds(const Shape& volume) : first{volume[0], volume[1], volume[2]} {}
  void include(const std::array<std::int64_t, 3>& at) {
    for (std::size_t a = 0; a < 3; ++a) first[a] = std::min(first[a], at[a]), end[a] = std::max(end[a], at[a] + 1);
  }
  Shape extents() const { return {end[0] - first[0], end[1] - first[1], end[2] - first[2]}; }
};

// Moves the component of `start` out of `labels`: its cells become 0 there and are returned in `cells`.
void take_component(std::vector<std::int32_t>& labels, const Shape& extents, std::int64_t start,
                    std::vector<std::int64_t>& cells) {
  const auto label = labels[index(start)];
  const auto take = [&](std::int64_t cell) { labels[index(cell)] = 0, cells.push_back(cell); };
  cells.clear();
  take(start);
  for (std::size_t next = 0; next < cells.size(); ++next) {
    const auto at = position(extents, cells[next]);
    Bounds around(extents);
    for (const std::int64_t step : {-1, 1}) {
      auto corner = at;
      for (int a = 0; a < 3; ++a) corner[index(a)] = std::clamp<std::int64_t>(at[index(a)] + step, 0, extents[a] - 1);
      around.include(corner);
    }
    for (auto d = around.first[0]; d < around.end[0]; ++d)
      for (auto h = around.first[1]; h < around.end[1]; ++h)
        for (auto w = around.first[2]; w < around.end[2]; ++w)
          if (const auto cell = (d * extents[1] + h) * extents[2] + w; labels[index(cell)] == label) take(cell);
  }
}

}  // namespace

std::vector<ClassCounts> count_classes(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                       std::int64_t classes) {
  require(truth.size() == predicted.size(), "[count_classes] {} predicted labels for {} true ones", predicted.size(),
          truth.size());
  require(classes > 0, "[count_classes] there is at least one class, not {}", classes);
  require_labels("count_classes", "truth", truth, classes);
  require_labels("count_classes", "predicted", predicted, classes);
  std::vector<ClassCounts> counts(index(classes));
  for (std::size_t i = 0; i < truth.size(); ++i) {
    counts[index(truth[i])].truth += 1, counts[index(predicted[i])].predicted += 1;
    if (truth[i] == predicted[i]) counts[index(truth[i])].both += 1;
  }
  return counts;
}

std::optional<double> dice(const ClassCounts& counts) {
  const auto cells = counts.predicted + counts.truth;
  if (cells == 0) return std::nullopt;
  return 2 * static_cast<double>(counts.both) / static_cast<double>(cells);
}

std::optional<double> jaccard(const ClassCounts& counts) {
  const auto cells = counts.predicted + counts.truth - counts.both;
  if (cells == 0) return std::nullopt;
  return static_cast<double>(counts.both) / static_cast<double>(cells);
}

std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes) {
  std::vector<std::int64_t> all;
  for (std::int64_t c = 1; c < classes; ++c) all.push_back(c);
  return largest_components(labels, extents, classes, all);
}

std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes,
                                             std::span<const std::int64_t> chosen) {
  require_volume("largest_components", "the volume", labels, extents);
  require_labels("largest_components", "label", labels, classes);
  std::vector<bool> is_chosen(index(std::max<std::int64_t>(classes, 1)));
  for (const auto c : chosen) {
    require(c >= 0 && c < classes, "[largest_components] classes are in [0, {}), {} is chosen", classes, c);
    is_chosen[index(c)] = c > 0;
  }
  // `left`: cells of chosen classes that no component has taken yet; `result`: the others.
  std::vector<std::int32_t> left(labels.begin(), labels.end()), result(labels.begin(), labels.end());
  for (std::size_t i = 0; i < labels.size(); ++i) (is_chosen[index(labels[i])] ? result : left)[i] = 0;
  std::vector<std::vector<std::int64_t>> largest(is_chosen.size());
  std::vector<std::int64_t> cells;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (left[i] == 0) continue;
    auto& best = largest[index(labels[i])];
    take_component(left, extents, static_cast<std::int64_t>(i), cells);
    if (cells.size() > best.size()) best.swap(cells);
  }
  for (std::size_t c = 1; c < largest.size(); ++c)
    for (const auto cell : largest[c]) result[index(cell)] = static_cast<std::int32_t>(c);
  return result;
}

}  // namespace mpigrad::segmentation
