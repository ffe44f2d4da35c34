#include "models/data/deform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

namespace mpigrad::data {
namespace {

constexpr std::int64_t parallel_from = 1 << 12;  // cells; with fewer, a second thread costs more than it gains

// Cubic B-splines at t in [0, 1) between two control points: weights of the point before them, of both, and of the point after
// them.
std::array<float, 4> spline_weights(double t) {
  const double u = 1 - t;
  return {static_cast<float>(u * u * u / 6), static_cast<float>((3 * t * t * t - 6 * t * t + 4) / 6),
          static_cast<float>((3 * u * u * u - 6 * u * u + 4) / 6), static_cast<float>(t * t * t / 6)};
}

// Catmull and Rom's weights of the cells -1, 0, 1 and 2 at t in [0, 1) between the cells 0 and 1.
std::array<double, 4> cubic_weights(double t) {
  return {t * (-0.5 + t * (1 - 0.5 * t)), 1 + t * t * (-2.5 + 1.5 * t), t * (0.5 + t * (2 - 1.5 * t)), t * t * (-0.5 + 0.5 * t)};
}

}  // namespace

bool Motion::linear() const { return matrix != Motion{}.matrix; }

Deformation::Deformation(const Motion& motion, const Augmentation& map, const std::array<std::int64_t, 3>& begin,
                         const Shape& sample)
    : motion_(motion), sample_(sample), map_(map), begin_(begin) {
  if (!motion.elastic) return;
  for (std::size_t a = 0; a < 3; ++a)
    controls_[a] =
        static_cast<std::int64_t>(static_cast<double>(motion.window[static_cast<int>(a)] - 1) / motion.elastic->spacing) + 4;
  moves_.resize(static_cast<std::size_t>(controls_[0] * controls_[1] * controls_[2]));
  for (std::size_t i = 0; i < moves_.size(); ++i)
    for (std::size_t a = 0; a < 3; ++a)
      // A picture stays in its plane.
      moves_[i][a] = motion.window[static_cast<int>(a)] == 1
                         ? 0
                         : static_cast<float>(motion.elastic->amplitude * (2 * motion.random.uniform(3 * i + a) - 1));
}

Box Deformation::needed(const Box& block) const {
  Box result{Shape{0, 0, 0}, Shape{0, 0, 0}};
  // The single-precision sums of displacements may exceed the amplitude by rounding.
  constexpr double rounding = 1e-3;
  std::array<double, 3> least{}, most{}, centre{};
  for (std::size_t a = 0; a < 3; ++a) {
    const double further = motion_.elastic ? motion_.elastic->amplitude + rounding : rounding;
    centre[a] = static_cast<double>(motion_.window[static_cast<int>(a)] - 1) / 2;
    least[a] = static_cast<double>(block.begin[static_cast<int>(a)]) - further - centre[a];
    most[a] = static_cast<double>(block.end[static_cast<int>(a)] - 1) + further - centre[a];
  }
  const double around = motion_.cubic ? 1 : 0;
  for (std::size_t a = 0; a < 3; ++a) {
    double low = centre[a], high = centre[a];
    for (std::size_t b = 0; b < 3; ++b) {
      const double m = motion_.matrix[a][b];
      low += std::min(m * least[b], m * most[b]), high += std::max(m * least[b], m * most[b]);
    }
    const int axis = map_.axes[a];
    const auto last = static_cast<double>(motion_.window[axis] - 1);
    if (map_.flip[a]) std::tie(low, high) = std::pair(last - high, last - low);
    const auto begin = static_cast<double>(begin_[static_cast<std::size_t>(axis)]), end = static_cast<double>(sample_[axis]);
    result.begin[axis] = static_cast<std::int64_t>(std::clamp(begin + std::floor(low) - around, 0.0, end));
    result.end[axis] =
        std::max(result.begin[axis], static_cast<std::int64_t>(std::clamp(begin + std::floor(high) + 2 + around, 0.0, end)));
  }
  return result;
}

template <class F>
void Deformation::for_cells(const Box& block, F f) const {
  const auto count = block.extents();
  // The weights of a row's control points, by column.
  struct Column {
    std::int64_t first = 0;
    std::array<float, 4> weights{};
  };
  std::array<std::vector<Column>, 3> columns;
  const bool moved = motion_.elastic.has_value(), turned = motion_.linear();
  std::array<double, 3> centre{};
  for (std::size_t a = 0; a < 3; ++a) centre[a] = static_cast<double>(motion_.window[static_cast<int>(a)] - 1) / 2;
  for (std::size_t a = 0; a < 3 && moved; ++a)
    for (auto i = block.begin[static_cast<int>(a)]; i < block.end[static_cast<int>(a)]; ++i) {
      const double at = static_cast<double>(i) / motion_.elastic->spacing;
      const double first = std::floor(at);
      columns[a].push_back({static_cast<std::int64_t>(first), spline_weights(at - first)});
    }
#pragma omp parallel for collapse(2) schedule(static) if (count.elements() >= parallel_from)
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h) {
      // The control points of this row, weighted along the other two axes.
      std::vector<std::array<float, 3>> line(static_cast<std::size_t>(controls_[2]));
      for (std::size_t i = 0; moved && i < 4; ++i)
        for (std::size_t j = 0; j < 4; ++j) {
          const auto &of_d = columns[0][static_cast<std::size_t>(d)], &of_h = columns[1][static_cast<std::size_t>(h)];
          const float weight = of_d.weights[i] * of_h.weights[j];
          const auto* row = moves_.data() + ((of_d.first + static_cast<std::int64_t>(i)) * controls_[1] + of_h.first +
                                             static_cast<std::int64_t>(j)) *
                                                controls_[2];
          for (std::size_t k = 0; k < line.size(); ++k)
            for (std::size_t a = 0; a < 3; ++a) line[k][a] += weight * row[k][a];
        }
      for (std::int64_t w = 0; w < count[2]; ++w) {
        const std::array<std::int64_t, 3> cell{block.begin[0] + d, block.begin[1] + h, block.begin[2] + w};
        std::array<double, 3> at{}, place{};
        for (std::size_t a = 0; a < 3; ++a) {
          at[a] = static_cast<double>(cell[a]);
          if (!moved) continue;
          const auto& of_w = columns[2][static_cast<std::size_t>(w)];
          float move = 0;
          for (std::size_t k = 0; k < 4; ++k) move += of_w.weights[k] * line[static_cast<std::size_t>(of_w.first) + k][a];
          at[a] += static_cast<double>(move);
        }
        if (turned) {
          std::array<double, 3> from{};
          for (std::size_t a = 0; a < 3; ++a) from[a] = at[a] - centre[a];
          for (std::size_t a = 0; a < 3; ++a) {
            const auto& m = motion_.matrix[a];
            at[a] = centre[a] + m[0] * from[0] + m[1] * from[1] + m[2] * from[2];
          }
        }
        for (std::size_t a = 0; a < 3; ++a) {
          const int axis = map_.axes[a];
          const auto stored = static_cast<std::size_t>(axis);
          place[stored] = (map_.flip[a] ? static_cast<double>(motion_.window[axis] - 1) - at[a] : at[a]) +
                          static_cast<double>(begin_[stored]);
        }
        f((d * count[1] + h) * count[2] + w, place);
      }
    }
}

template <class To>
void Deformation::linear_values(const Box& block, std::int64_t channels, const To* from, To* to) const {
  const auto box = needed(block);
  const auto extents = box.extents();
  const std::array<std::int64_t, 3> strides{extents[1] * extents[2] * channels, extents[2] * channels, channels};
  for_cells(block, [&](std::int64_t i, const std::array<double, 3>& place) {
    To* out = to + i * channels;
    std::fill_n(out, channels, To{0});
    std::array<std::int64_t, 3> first{};
    std::array<std::array<double, 2>, 3> weights{};
    bool all_inside = true;
    for (std::size_t a = 0; a < 3; ++a) {
      const double low = std::floor(place[a]);
      first[a] = static_cast<std::int64_t>(low) - box.begin[static_cast<int>(a)];
      weights[a] = {1 - (place[a] - low), place[a] - low};
      all_inside = all_inside && first[a] >= 0 && first[a] + 1 < extents[static_cast<int>(a)];
    }
    for (std::size_t corner = 0; corner < 8; ++corner) {
      const std::array<std::size_t, 3> far{corner >> 2, (corner >> 1) & 1, corner & 1};
      const double weight = weights[0][far[0]] * weights[1][far[1]] * weights[2][far[2]];
      if (weight == 0) continue;
      std::int64_t at = 0;
      bool inside = true;
      for (std::size_t a = 0; a < 3; ++a) {
        const auto cell = first[a] + static_cast<std::int64_t>(far[a]);
        inside = inside && (all_inside || (cell >= 0 && cell < extents[static_cast<int>(a)]));
        at += cell * strides[a];
      }
      if (!inside) continue;
      for (std::int64_t c = 0; c < channels; ++c) out[c] += static_cast<To>(weight) * from[at + c];
    }
  });
}

template <class To>
void Deformation::cubic_values(const Box& block, std::int64_t channels, const To* from, To* to) const {
  const auto box = needed(block);
  const auto extents = box.extents();
  for_cells(block, [&](std::int64_t i, const std::array<double, 3>& place) {
    To* out = to + i * channels;
    std::fill_n(out, channels, To{0});
    // The cells along each axis; where a cell is outside, its weight is 0.
    std::array<std::array<std::int64_t, 4>, 3> cells{};
    std::array<std::array<double, 4>, 3> weights{};
    for (std::size_t a = 0; a < 3; ++a) {
      const double low = std::floor(place[a]);
      weights[a] = cubic_weights(place[a] - low);
      for (std::size_t k = 0; k < 4; ++k) {
        cells[a][k] = static_cast<std::int64_t>(low) + static_cast<std::int64_t>(k) - 1 - box.begin[static_cast<int>(a)];
        if (cells[a][k] < 0 || cells[a][k] >= extents[static_cast<int>(a)]) cells[a][k] = 0, weights[a][k] = 0;
      }
    }
    for (std::size_t d = 0; d < 4; ++d)
      for (std::size_t h = 0; h < 4; ++h) {
        const double outer = weights[0][d] * weights[1][h];
        if (outer == 0) continue;
        const To* row = from + (cells[0][d] * extents[1] + cells[1][h]) * extents[2] * channels;
        for (std::size_t w = 0; w < 4; ++w) {
          const auto weight = static_cast<To>(outer * weights[2][w]);
          if (weight == 0) continue;
          for (std::int64_t c = 0; c < channels; ++c) out[c] += weight * row[cells[2][w] * channels + c];
        }
      }
  });
}

template <class To>
void Deformation::values(const Box& block, std::int64_t channels, const To* from, To* to) const {
  if (needed(block).elements() == 0) std::fill_n(to, block.elements() * channels, To{0});
  else if (motion_.cubic) cubic_values(block, channels, from, to);
  else linear_values(block, channels, from, to);
}
template void Deformation::values(const Box&, std::int64_t, const float*, float*) const;
template void Deformation::values(const Box&, std::int64_t, const double*, double*) const;

void Deformation::labels(const Box& block, std::int64_t bytes, const std::byte* from, std::byte* to) const {
  const auto box = needed(block);
  const auto extents = box.extents();
  // The label of a cell as a number; 0 outside.
  const auto label_at = [&](const std::array<std::int64_t, 3>& cell) {
    std::uint64_t label = 0;
    for (int a = 0; a < 3; ++a)
      if (cell[static_cast<std::size_t>(a)] < 0 || cell[static_cast<std::size_t>(a)] >= extents[a]) return label;
    std::memcpy(&label, from + ((cell[0] * extents[1] + cell[1]) * extents[2] + cell[2]) * bytes,
                static_cast<std::size_t>(bytes));
    return label;
  };
  if (motion_.by_score && bytes <= static_cast<std::int64_t>(sizeof(std::uint64_t))) {
    for_cells(block, [&](std::int64_t i, const std::array<double, 3>& place) {
      std::array<std::uint64_t, 8> labels{};
      std::array<double, 8> scores{};  // of the label, at the first corner that has it
      for (std::size_t corner = 0; corner < 8; ++corner) {
        const std::array<std::size_t, 3> far{corner >> 2, (corner >> 1) & 1, corner & 1};
        std::array<std::int64_t, 3> cell{};
        double weight = 1;
        for (std::size_t a = 0; a < 3; ++a) {
          const double low = std::floor(place[a]), right = place[a] - low;
          cell[a] = static_cast<std::int64_t>(low) + static_cast<std::int64_t>(far[a]) - box.begin[static_cast<int>(a)];
          weight *= far[a] != 0 ? right : 1 - right;
        }
        labels[corner] = label_at(cell);
        std::size_t first = 0;
        while (labels[first] != labels[corner]) ++first;
        scores[first] += weight;
      }
      const auto best = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      std::memcpy(to + i * bytes, &labels[best], static_cast<std::size_t>(bytes));
    });
    return;
  }
  for_cells(block, [&](std::int64_t i, const std::array<double, 3>& place) {
    std::int64_t at = 0;
    bool inside = true;
    for (int a = 0; a < 3; ++a) {
      const auto cell = static_cast<std::int64_t>(std::floor(place[static_cast<std::size_t>(a)] + 0.5)) - box.begin[a];
      inside = inside && cell >= 0 && cell < extents[a];
      at = at * extents[a] + cell;
    }
    if (inside) std::memcpy(to + i * bytes, from + at * bytes, static_cast<std::size_t>(bytes));
    else std::memset(to + i * bytes, 0, static_cast<std::size_t>(bytes));
  });
}

}  // namespace mpigrad::data
