#include "models/data/deform.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

}  // namespace

Deformation::Deformation(const Elastic& elastic, const Philox& random, const Shape& window, const Augmentation& map,
                         const std::array<std::int64_t, 3>& begin, const Shape& sample)
    : elastic_(elastic), window_(window), sample_(sample), map_(map), begin_(begin) {
  for (std::size_t a = 0; a < 3; ++a)
    controls_[a] = static_cast<std::int64_t>(static_cast<double>(window[static_cast<int>(a)] - 1) / elastic.spacing) + 4;
  moves_.resize(static_cast<std::size_t>(controls_[0] * controls_[1] * controls_[2]));
  for (std::size_t i = 0; i < moves_.size(); ++i)
    for (std::size_t a = 0; a < 3; ++a)
      moves_[i][a] = static_cast<float>(elastic.amplitude * (2 * random.uniform(3 * i + a) - 1));
}

Box Deformation::needed(const Box& block) const {
  Box result{Shape{0, 0, 0}, Shape{0, 0, 0}};
  // One more cell for the neighbour, because values are interpolated between two cells.
  const auto further = static_cast<std::int64_t>(std::ceil(elastic_.amplitude)) + 1;
  for (std::size_t a = 0; a < 3; ++a) {
    const int axis = map_.axes[a];
    const auto n = window_[axis];
    auto from = block.begin[static_cast<int>(a)], to = block.end[static_cast<int>(a)];
    if (map_.flip[a]) from = n - block.end[static_cast<int>(a)], to = n - block.begin[static_cast<int>(a)];
    const auto begin = begin_[static_cast<std::size_t>(axis)];
    result.begin[axis] = std::clamp<std::int64_t>(begin + from - further, 0, sample_[axis]);
    result.end[axis] = std::clamp<std::int64_t>(begin + to + further, result.begin[axis], sample_[axis]);
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
  for (std::size_t a = 0; a < 3; ++a)
    for (auto i = block.begin[static_cast<int>(a)]; i < block.end[static_cast<int>(a)]; ++i) {
      const double at = static_cast<double>(i) / elastic_.spacing;
      const double first = std::floor(at);
      columns[a].push_back({static_cast<std::int64_t>(first), spline_weights(at - first)});
    }
#pragma omp parallel for collapse(2) schedule(static) if (count.elements() >= parallel_from)
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h) {
      const auto &of_d = columns[0][static_cast<std::size_t>(d)], &of_h = columns[1][static_cast<std::size_t>(h)];
      // The control points of this row, weighted along the other two axes.
      std::vector<std::array<float, 3>> line(static_cast<std::size_t>(controls_[2]));
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 4; ++j) {
          const float weight = of_d.weights[i] * of_h.weights[j];
          const auto* row = moves_.data() + ((of_d.first + static_cast<std::int64_t>(i)) * controls_[1] + of_h.first +
                                             static_cast<std::int64_t>(j)) *
                                                controls_[2];
          for (std::size_t k = 0; k < line.size(); ++k)
            for (std::size_t a = 0; a < 3; ++a) line[k][a] += weight * row[k][a];
        }
      for (std::int64_t w = 0; w < count[2]; ++w) {
        const auto& of_w = columns[2][static_cast<std::size_t>(w)];
        const std::array<std::int64_t, 3> cell{block.begin[0] + d, block.begin[1] + h, block.begin[2] + w};
        std::array<double, 3> place{};
        for (std::size_t a = 0; a < 3; ++a) {
          float move = 0;
          for (std::size_t k = 0; k < 4; ++k) move += of_w.weights[k] * line[static_cast<std::size_t>(of_w.first) + k][a];
          const int axis = map_.axes[a];
          const double at = static_cast<double>(cell[a]) + static_cast<double>(move);
          const auto stored = static_cast<std::size_t>(axis);
          place[stored] = (map_.flip[a] ? static_cast<double>(window_[axis] - 1) - at : at) + static_cast<double>(begin_[stored]);
        }
        f((d * count[1] + h) * count[2] + w, place);
      }
    }
}

template <class To>
void Deformation::values(const Box& block, std::int64_t channels, const To* from, To* to) const {
  const auto box = needed(block);
  const auto extents = box.extents();
  const std::array<std::int64_t, 3> strides{extents[1] * extents[2] * channels, extents[2] * channels, channels};
  for_cells(block, [&](std::int64_t i, const std::array<double, 3>& place) {
    To* out = to + i * channels;
    std::fill_n(out, channels, To{0});
    std::array<std::int64_t, 3> first{};
    std::array<double, 3> right{};
    for (std::size_t a = 0; a < 3; ++a) {
      const double low = std::floor(place[a]);
      first[a] = static_cast<std::int64_t>(low) - box.begin[static_cast<int>(a)], right[a] = place[a] - low;
    }
    for (int corner = 0; corner < 8; ++corner) {
      double weight = 1;
      std::int64_t at = 0;
      bool inside = true;
      for (std::size_t a = 0; a < 3; ++a) {
        const auto far = (corner >> (2 - a)) & 1;
        const auto cell = first[a] + far;
        weight *= far != 0 ? right[a] : 1 - right[a];
        inside = inside && cell >= 0 && cell < extents[static_cast<int>(a)];
        at += cell * strides[a];
      }
      if (!inside || weight == 0) continue;
      for (std::int64_t c = 0; c < channels; ++c) out[c] += static_cast<To>(weight) * from[at + c];
    }
  });
}
template void Deformation::values(const Box&, std::int64_t, const float*, float*) const;
template void Deformation::values(const Box&, std::int64_t, const double*, double*) const;

void Deformation::labels(const Box& block, std::int64_t bytes, const std::byte* from, std::byte* to) const {
  const auto box = needed(block);
  const auto extents = box.extents();
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

template <class T>
void change_values(const Intensity& o, const Philox& random, const Shape& window, const Box& block, std::int64_t channels,
                   T* values) {
  const Philox of_sample = random.child(0), of_cells = random.child(1);
  const auto between = [&](std::uint64_t i, double low, double high) { return low + (high - low) * of_sample.uniform(i); };
  const double factor = between(0, 1 - o.contrast, 1 + o.contrast), shift = between(1, -o.brightness, o.brightness);
  const double deviation = between(2, 0, o.noise);
  const auto count = block.extents();
#pragma omp parallel for collapse(2) schedule(static) if (count.elements() * channels >= parallel_from)
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h) {
      const auto first = ((block.begin[0] + d) * window[1] + block.begin[1] + h) * window[2] + block.begin[2];
      T* row = values + (d * count[1] + h) * count[2] * channels;
      for (std::int64_t i = 0; i < count[2] * channels; ++i) {
        double value = factor * static_cast<double>(row[i]) + shift;
        if (deviation > 0) value += deviation * of_cells.normal(static_cast<std::uint64_t>(first * channels + i));
        row[i] = static_cast<T>(value);
      }
    }
}
template void change_values(const Intensity&, const Philox&, const Shape&, const Box&, std::int64_t, float*);
template void change_values(const Intensity&, const Philox&, const Shape&, const Box&, std::int64_t, double*);

}  // namespace mpigrad::data
