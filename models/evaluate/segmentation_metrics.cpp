#include "models/evaluate/segmentation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/error.h"

namespace mpigrad::segmentation {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t parallel_cells_from = 1 << 15;  // cells; below, threads do not pay

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

// The smallest box around all cells with the label; none if there are no such cells.
std::optional<Bounds> bounds_of(std::span<const std::int32_t> labels, const Shape& extents, std::int32_t label) {
  Bounds box(extents);
  auto cell = std::find(labels.begin(), labels.end(), label);
  if (cell == labels.end()) return std::nullopt;
  for (; cell != labels.end(); ++cell)
    if (*cell == label) box.include(position(extents, cell - labels.begin()));
  return box;
}

// The surface of the cells with the label, as cells of the box around all of them. Outside the box, as outside the volume, no
// cell has the label, so both borders are treated alike.
std::vector<std::int64_t> surface(std::span<const std::int32_t> labels, const Shape& extents, std::int32_t label,
                                  const Bounds& box) {
  const auto size = box.extents();
  const auto strides = extents.strides();
  std::vector<std::int64_t> result;
  std::int64_t cell = 0;
  for (std::int64_t d = 0; d < size[0]; ++d)
    for (std::int64_t h = 0; h < size[1]; ++h)
      for (std::int64_t w = 0; w < size[2]; ++w, ++cell) {
        const std::array<std::int64_t, 3> at{d, h, w};
        std::int64_t source = 0;
        for (std::size_t a = 0; a < 3; ++a) source += (box.first[a] + at[a]) * strides[a];
        if (labels[index(source)] != label) continue;
        bool inner = true;
        for (std::size_t a = 0; a < 3 && inner; ++a)
          inner = at[a] > 0 && at[a] + 1 < size[static_cast<int>(a)] && labels[index(source - strides[a])] == label &&
                  labels[index(source + strides[a])] == label;
        if (!inner) result.push_back(cell);
      }
  return result;
}

// Replaces f(p) along a line by min over q of f(q) + (spacing (p - q))^2: the lower envelope of one parabola for each q with
// finite f.
class LowerEnvelope {
 public:
  LowerEnvelope(std::int64_t length, double spacing) : length_(length), spacing_(spacing), parabolas_(index(length)) {}

  void transform(double* f, std::int64_t stride) {
    std::size_t count = 0;
    for (std::int64_t q = 0; q < length_; ++q) {
      Parabola next{.at = static_cast<double>(q), .height = f[q * stride], .from = -infinity};
      if (next.height == infinity) continue;
      // The new parabola is the lowest to the right of its crossing with the last one. It hides the last one if the crossing is
      // left of where the last one begins. The first parabola begins at -infinity and is never hidden.
      for (; count > 0; --count) {
        const auto& last = parabolas_[count - 1];
        const double rise = (next.height - last.height) / (next.at - last.at);
        next.from = (rise / (spacing_ * spacing_) + next.at + last.at) / 2;
        if (next.from > last.from) break;
      }
      parabolas_[count++] = next;
    }
    if (count == 0) return;
    std::size_t k = 0;
    for (std::int64_t p = 0; p < length_; ++p) {
      const auto at = static_cast<double>(p);
      while (k + 1 < count && parabolas_[k + 1].from < at) ++k;
      const double distance = spacing_ * (at - parabolas_[k].at);
      f[p * stride] = distance * distance + parabolas_[k].height;
    }
  }

 private:
  struct Parabola {
    double at = 0, height = 0;  // its vertex, `at` counted in cells
    double from = 0;            // it is the lowest from this cell to the beginning of the next one
  };
  std::int64_t length_;
  double spacing_;
  std::vector<Parabola> parabolas_;
};

// Squared distances of all cells of a box to the nearest of `sources`, computed along one axis after the other.
std::vector<double> squared_distances(const std::vector<std::int64_t>& sources, const Shape& extents,
                                      const std::array<double, 3>& spacing) {
  std::vector<double> result(index(extents.elements()), infinity);
  for (const auto source : sources) result[index(source)] = 0;
  for (int axis = 2; axis >= 0; --axis) {
    const auto length = extents[axis], stride = extents.elements(axis + 1, 3), lines = extents.elements() / length;
#pragma omp parallel if (extents.elements() >= parallel_cells_from)
    {
      LowerEnvelope envelope(length, spacing[index(axis)]);
#pragma omp for schedule(static)
      for (std::int64_t line = 0; line < lines; ++line)
        envelope.transform(result.data() + line / stride * stride * length + line % stride, stride);
    }
  }
  return result;
}

// `values` is not empty and gets reordered.
double percentile95(std::vector<double>& values) {
  const double rank = 0.95 * static_cast<double>(values.size() - 1), below = std::floor(rank);
  const auto lower = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), lower, values.end());
  if (lower + 1 == values.end()) return *lower;
  return std::lerp(*lower, *std::min_element(lower + 1, values.end()), rank - below);
}

// The 95th percentile in one direction, between two surfaces in one box.
double directed_distance(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to, const Shape& extents,
                         const std::array<double, 3>& spacing) {
  const auto squares = squared_distances(to, extents, spacing);
  std::vector<double> distances;
  distances.reserve(from.size());
  for (const auto cell : from) distances.push_back(std::sqrt(squares[index(cell)]));
  return percentile95(distances);
}

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

std::optional<double> hausdorff95(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                  const Shape& extents, std::int32_t label, const std::array<double, 3>& spacing) {
  require_volume("hausdorff95", "truth", truth, extents);
  require_volume("hausdorff95", "predicted", predicted, extents);
  for (const double s : spacing)
    require(s > 0 && std::isfinite(s), "[hausdorff95] a spacing is a positive number: {}, {}, {}", spacing[0], spacing[1],
            spacing[2]);
  auto box = bounds_of(truth, extents, label);
  const auto other = bounds_of(predicted, extents, label);
  if (!box || !other) return std::nullopt;
  box->include(other->first);
  box->include({other->end[0] - 1, other->end[1] - 1, other->end[2] - 1});
  // The box contains both surfaces, so distances outside of it are not needed.
  const auto a = surface(truth, extents, label, *box), b = surface(predicted, extents, label, *box);
  return std::max(directed_distance(a, b, box->extents(), spacing), directed_distance(b, a, box->extents(), spacing));
}

std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes) {
  require_volume("largest_components", "the volume", labels, extents);
  require_labels("largest_components", "label", labels, classes);
  std::vector<std::vector<std::int64_t>> largest(index(std::max<std::int64_t>(classes, 0)));
  std::vector<std::int32_t> left(labels.begin(), labels.end());
  std::vector<std::int64_t> cells;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (left[i] == 0) continue;
    auto& best = largest[index(labels[i])];
    take_component(left, extents, static_cast<std::int64_t>(i), cells);
    if (cells.size() > best.size()) best.swap(cells);
  }
  std::vector<std::int32_t> result(labels.size());
  for (std::size_t c = 1; c < largest.size(); ++c)
    for (const auto cell : largest[c]) result[index(cell)] = static_cast<std::int32_t>(c);
  return result;
}

}  // namespace mpigrad::segmentation
