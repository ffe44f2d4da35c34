// Surfaces of segmented volumes and the distances between them.

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/error.h"
#include "models/evaluate/segmentation_metrics.h"

namespace mpigrad::segmentation {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t parallel_cells_from = 1 << 15;  // cells; below, threads do not pay

std::size_t cell_of(std::int64_t i) { return static_cast<std::size_t>(i); }

// Cells [first, end) along D, H, W.
struct LabelBox {
  std::array<std::int64_t, 3> first, end{};

  explicit LabelBox(const Shape& volume) : first{volume[0], volume[1], volume[2]} {}
  bool empty() const { return end[0] == 0; }
  void include(std::span<const std::int32_t> labels, const Shape& extents, std::int32_t label) {
    for (auto cell = labels.begin(); (cell = std::find(cell, labels.end(), label)) != labels.end(); ++cell) {
      const auto row = (cell - labels.begin()) / extents[2];
      const std::array<std::int64_t, 3> at{row / extents[1], row % extents[1], (cell - labels.begin()) % extents[2]};
      for (std::size_t a = 0; a < 3; ++a) first[a] = std::min(first[a], at[a]), end[a] = std::max(end[a], at[a] + 1);
    }
  }
  // Of the corners of its cells.
  Shape corners() const { return {end[0] - first[0] + 1, end[1] - first[1] + 1, end[2] - first[2] + 1}; }
};

// A part of a surface around a corner of cells.
struct Element {
  std::int64_t corner = 0;
  double area = 0;  // mm^2
};

// The surface of the cells with the label. Each corner has a quarter of each face between a cell with the label and one without
// that meets there; the area is that of the sum of these quarters as vectors, so that a staircase counts as the oblique plane
// that it stands for. Outside of the box, as outside of the volume, no cell has the label.
std::vector<Element> surface(std::span<const std::int32_t> labels, const Shape& extents, std::int32_t label, const LabelBox& box,
                             const std::array<double, 3>& spacing) {
  const auto corners = box.corners();
  const std::array<double, 3> face{spacing[1] * spacing[2], spacing[0] * spacing[2], spacing[0] * spacing[1]};
  std::vector<Element> result;
  std::int64_t corner = 0;
  for (std::int64_t d = 0; d < corners[0]; ++d)
    for (std::int64_t h = 0; h < corners[1]; ++h)
      for (std::int64_t w = 0; w < corners[2]; ++w, ++corner) {
        const std::array<std::int64_t, 3> at{d, h, w};
        std::array<bool, 8> inside{};  // cell (i, j, k) of the two along each axis is number 4 i + 2 j + k
        int count = 0;
        for (std::size_t n = 0; n < 8; ++n) {
          std::int64_t cell = 0;
          bool in_box = true;
          for (std::size_t a = 0; a < 3; ++a) {
            const auto c = box.first[a] + at[a] - 1 + static_cast<std::int64_t>(n >> (2 - a) & 1);
            in_box = in_box && c >= box.first[a] && c < box.end[a];
            cell = cell * extents[static_cast<int>(a)] + c;
          }
          inside[n] = in_box && labels[cell_of(cell)] == label;
          count += inside[n];
        }
        if (count == 0 || count == 8) continue;
        double squares = 0, all = 0;
        for (std::size_t a = 0; a < 3; ++a) {
          const std::size_t step = std::size_t{4} >> a;
          int sum = 0, faces = 0;
          for (std::size_t n = 0; n < 8; ++n)
            if ((n & step) == 0) sum += inside[n + step] - inside[n], faces += inside[n + step] != inside[n];
          squares += std::pow(sum * face[a] / 4, 2), all += faces * face[a] / 4;
        }
        // Quarters that cancel, as where two cells touch at an edge or a corner, count for themselves.
        result.push_back({corner, squares > 0 ? std::sqrt(squares) : all});
      }
  return result;
}

// Replaces f(p) along a line by min over q of f(q) + (spacing (p - q))^2: the lower envelope of one parabola for each q with
// finite f.
class LowerEnvelope {
 public:
  LowerEnvelope(std::int64_t length, double spacing) : length_(length), spacing_(spacing), parabolas_(cell_of(length)) {}

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

// Squared distances of all corners of a box to the nearest of `sources`, computed along one axis after the other.
std::vector<double> squared_distances(const std::vector<Element>& sources, const Shape& extents,
                                      const std::array<double, 3>& spacing) {
  std::vector<double> result(cell_of(extents.elements()), infinity);
  for (const auto& source : sources) result[cell_of(source.corner)] = 0;
  for (int axis = 2; axis >= 0; --axis) {
    const auto length = extents[axis], stride = extents.elements(axis + 1, 3), lines = extents.elements() / length;
#pragma omp parallel if (extents.elements() >= parallel_cells_from)
    {
      LowerEnvelope envelope(length, spacing[cell_of(axis)]);
#pragma omp for schedule(static)
      for (std::int64_t line = 0; line < lines; ++line)
        envelope.transform(result.data() + line / stride * stride * length + line % stride, stride);
    }
  }
  return result;
}

// The elements' distances to another surface, in increasing order, with their areas.
struct Distances {
  std::vector<std::pair<double, double>> of_elements;
  double area = 0;

  Distances(const std::vector<Element>& from, const std::vector<Element>& to, const Shape& corners,
            const std::array<double, 3>& spacing) {
    const auto squares = squared_distances(to, corners, spacing);
    for (const auto& each : from) {
      of_elements.emplace_back(std::sqrt(squares[cell_of(each.corner)]), each.area);
      area += each.area;
    }
    std::sort(of_elements.begin(), of_elements.end());
  }
  // The least distance within which 95 % of the area lie.
  double percentile95() const {
    double sum = 0;
    for (const auto& [distance, part] : of_elements)
      if ((sum += part) >= 0.95 * area) return distance;
    return of_elements.back().first;
  }
  double area_beyond(double tolerance) const {
    double sum = 0;
    for (const auto& [distance, part] : of_elements)
      if (distance > tolerance) sum += part;
    return sum;
  }
};

void require_volume(const char* name, std::span<const std::int32_t> labels, const Shape& extents) {
  require(extents.rank() == 3, "[surface_agreement] extents are [D, H, W], not {}", extents);
  require(static_cast<std::int64_t>(labels.size()) == extents.elements(),
          "[surface_agreement] {} has {} labels for the cells of {}", name, labels.size(), extents);
}

}  // namespace

std::optional<SurfaceAgreement> surface_agreement(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                                  const Shape& extents, std::int32_t label, const std::array<double, 3>& spacing,
                                                  double tolerance) {
  require_volume("truth", truth, extents);
  require_volume("predicted", predicted, extents);
  for (const double s : spacing)
    require(s > 0 && std::isfinite(s), "[surface_agreement] a spacing is a positive number: {}, {}, {}", spacing[0], spacing[1],
            spacing[2]);
  require(tolerance >= 0, "[surface_agreement] the tolerance is not negative, got {}", tolerance);
  LabelBox box(extents), other(extents);
  box.include(truth, extents, label), other.include(predicted, extents, label);
  if (box.empty() && other.empty()) return std::nullopt;
  if (box.empty() || other.empty()) {
    double squares = 0;
    for (int a = 0; a < 3; ++a) squares += std::pow(spacing[cell_of(a)] * static_cast<double>(extents[a]), 2);
    return SurfaceAgreement{.hausdorff95 = std::sqrt(squares), .within_tolerance = 0};
  }
  // The box contains both surfaces, so distances outside of it are not needed.
  for (std::size_t a = 0; a < 3; ++a)
    box.first[a] = std::min(box.first[a], other.first[a]), box.end[a] = std::max(box.end[a], other.end[a]);
  const auto a = surface(truth, extents, label, box, spacing), b = surface(predicted, extents, label, box, spacing);
  const Distances there(a, b, box.corners(), spacing), back(b, a, box.corners(), spacing);
  return SurfaceAgreement{
      .hausdorff95 = std::max(there.percentile95(), back.percentile95()),
      .within_tolerance = 1 - (there.area_beyond(tolerance) + back.area_beyond(tolerance)) / (there.area + back.area)};
}

}  // namespace mpigrad::segmentation
