#include "models/evaluate/window_sums.h"

#include <cmath>

#include "models/data/window.h"

namespace mpigrad::segmentation {

std::vector<std::int64_t> window_places(std::int64_t n, std::int64_t window, double overlap) {
  if (n <= window) return {data::centred(n, window)};
  const double step = std::max(1.0, static_cast<double>(window) * (1 - overlap));
  const auto count = static_cast<std::int64_t>(std::ceil(static_cast<double>(n - window) / step)) + 1;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i)
    places.push_back(std::llround(static_cast<double>(i) * static_cast<double>(n - window) / static_cast<double>(count - 1)));
  return places;
}

Windows::Windows(const Shape& extents, const SlidingWindowOptions& o) : extents_(extents) {
  for (std::size_t a = 0; a < 3; ++a) {
    const auto n = extents[static_cast<int>(a)], window = o.window[static_cast<int>(a)];
    along_[a] = window_places(n, window, o.overlap);
    const double middle = static_cast<double>(window - 1) / 2, sigma = static_cast<double>(window) / 8;
    for (std::int64_t i = 0; i < window; ++i) {
      const double r = (static_cast<double>(i) - middle) / sigma;
      weights_[a].push_back(o.gaussian ? std::exp(-r * r / 2) : 1);
    }
    totals_[a].resize(static_cast<std::size_t>(n));
    for (const auto place : along_[a])
      for (std::int64_t i = std::max<std::int64_t>(0, -place); i < window && place + i < n; ++i)
        totals_[a][static_cast<std::size_t>(place + i)] += weights_[a][static_cast<std::size_t>(i)];
  }
}

Place Windows::place(std::size_t i) const {
  i = std::min(i, size() - 1);
  const auto columns = along_[2].size(), rows = along_[1].size();
  return {along_[0][i / columns / rows], along_[1][i / columns % rows], along_[2][i % columns]};
}

LinearPlaces::LinearPlaces(std::int64_t n, std::int64_t to) {
  const double step = static_cast<double>(n) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = std::clamp((static_cast<double>(i) + 0.5) * step - 0.5, 0.0, static_cast<double>(n - 1));
    first.push_back(static_cast<std::int64_t>(at));
    right.push_back(n == to ? 0 : static_cast<float>(at - std::floor(at)));
    if (n == to) first.back() = i;
  }
}

std::vector<Box> columns_of_ranks(const Shape& extents, int ranks) {
  // Each prime factor of the number of ranks cuts the axis whose parts are longer.
  int rows = 1, columns = 1;
  for (int factor = 2, left = ranks; left > 1;) {
    if (left % factor != 0) {
      ++factor;
      continue;
    }
    left /= factor;
    (extents[1] * columns >= extents[2] * rows ? rows : columns) *= factor;
  }
  const auto h = balanced_cuts(extents[1], rows), w = balanced_cuts(extents[2], columns);
  std::vector<Box> boxes;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank / columns), c = static_cast<std::size_t>(rank % columns);
    boxes.push_back({{0, h[r], w[c]}, {extents[0], h[r + 1], w[c + 1]}});
  }
  return boxes;
}

Box needed_cells(const Box& box, const Shape& seen, const Shape& extents) {
  Box result{Shape{0, 0, 0}, Shape{0, 0, 0}};
  for (int a = 0; a < 3; ++a) {
    if (box.begin[a] == box.end[a]) continue;
    const LinearPlaces places(seen[a], extents[a]);
    const auto last = static_cast<std::size_t>(box.end[a] - 1);
    result.begin[a] = places.first[static_cast<std::size_t>(box.begin[a])];
    result.end[a] = places.first[last] + (places.right[last] > 0 ? 2 : 1);
  }
  return result;
}

}  // namespace mpigrad::segmentation
