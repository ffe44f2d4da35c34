#pragma once
// Sums over the windows of a volume: where windows lie, with which weights they count, and the planes of sums in progress. A part
// of sliding_window.h.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include "framework/tensor/layout.h"
#include "models/evaluate/window_options.h"

namespace mpigrad::segmentation {

using Place = std::array<std::int64_t, 3>;

// The windows of a sample [D, H, W], those of the first plane first, and their weights.
class Windows {
 public:
  Windows(const Shape& extents, const SlidingWindowOptions& options);
  std::size_t size() const { return along_[0].size() * along_[1].size() * along_[2].size(); }
  // The number of window i along each axis.
  std::array<std::size_t, 3> number(std::size_t i) const {
    const auto rows = along_[1].size(), columns = along_[2].size();
    return {i / (rows * columns), i / columns % rows, i % columns};
  }
  // Where window i begins; the last one for any i beyond.
  Place place(std::size_t i) const;
  // The first plane that window i or a later one contains; the number of planes if there is none.
  std::int64_t unfinished(std::size_t i) const { return i < size() ? std::max<std::int64_t>(place(i)[0], 0) : extents_[0]; }
  // The weight of a window that begins at `place`, for the cell at `at` of the sample along an axis. The weights of all windows
  // that contain a cell add up to 1.
  double weight(std::size_t axis, std::int64_t place, std::int64_t at) const {
    return weights_[axis][static_cast<std::size_t>(at - place)] / totals_[axis][static_cast<std::size_t>(at)];
  }

 private:
  Shape extents_;
  std::array<std::vector<std::int64_t>, 3> along_;
  std::array<std::vector<double>, 3> weights_, totals_;  // of the window's cells; their sums for each cell of the sample
};

// A probability as a sum stores it. A uint16 is a whole number of 1/65535.
template <class T>
T stored_probability(float p) {
  if constexpr (std::is_same_v<T, float>) return p;
  else return static_cast<T>(p > 0 ? std::min(p * 65535.0F + 0.5F, 65535.0F) : 0.0F);
}

// 1/2 as a sum stores it.
template <class T>
inline constexpr float one_half = std::is_same_v<T, float> ? 0.5F : 32767.5F;

// The class of a cell with these probabilities: the first of the largest, or, if `written` has a class for each, that of the last
// one above `middle`, 0 if there is none.
inline std::uint16_t class_of(const std::vector<float>& p, const std::vector<std::int64_t>& written, float middle) {
  if (written.empty()) return static_cast<std::uint16_t>(std::max_element(p.begin(), p.end()) - p.begin());
  for (auto i = p.size(); i > 0; --i)
    if (p[i - 1] > middle) return static_cast<std::uint16_t>(written[i - 1]);
  return 0;
}

// Sums of probabilities for the cells of a box of rows and columns in all planes. Planes are allocated when the first window
// reaches them.
template <class T>
class WindowSums {
 public:
  WindowSums(const Box& own, std::int64_t classes)
      : own_(own), row_((own.end[2] - own.begin[2]) * classes), plane_((own.end[1] - own.begin[1]) * row_), classes_(classes) {}

  // Adds `values`, [cells of `part`, classes], of window `i`; its weights are multiplied by `factor`.
  // `turn` numbers the additions of one window.
  void add(const Windows& windows, std::size_t i, const Box& part, double factor, const T* values, std::size_t turn = 0) {
    const auto place = windows.place(i);
    const float rounding = rounding_of(windows.number(i), turn);
    while (first_ + static_cast<std::int64_t>(planes_.size()) < part.end[0])
      planes_.emplace_back(static_cast<std::size_t>(plane_));
    const auto extents = part.extents();
    std::vector<float> columns;
    for (auto w = part.begin[2]; w < part.end[2]; ++w) columns.push_back(static_cast<float>(windows.weight(2, place[2], w)));
    const auto rows = extents[0] * extents[1];
#pragma omp parallel for schedule(static) if (extents.elements() * classes_ > 1 << 16)
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto d = part.begin[0] + row / extents[1], h = part.begin[1] + row % extents[1];
      const auto weight = static_cast<float>(factor * windows.weight(0, place[0], d) * windows.weight(1, place[1], h));
      const T* from = values + row * extents[2] * classes_;
      T* to = planes_[static_cast<std::size_t>(d - first_)].data() + (h - own_.begin[1]) * row_ +
              (part.begin[2] - own_.begin[2]) * classes_;
      for (const float column : columns)
        for (std::int64_t c = 0; c < classes_; ++c, ++from, ++to) add(*to, weight * column, *from, rounding);
    }
  }

  // Calls f(d, sums of plane d: [rows, columns, classes]) for every plane below `end` that it was not called for.
  template <class F>
  void finish(std::int64_t end, F&& f) {
    for (; first_ < end; ++first_) {
      std::vector<T> plane(planes_.empty() ? static_cast<std::size_t>(plane_) : 0);
      if (!planes_.empty()) plane = std::move(planes_.front()), planes_.pop_front();
      f(first_, std::move(plane));
    }
  }

 private:
  // What is added before whole numbers are cut off. With 1/2, the rounding of many small parts of a sum would always have one
  // sign. These numbers fill [0, 1) evenly over windows and turns, so that the errors of a cell cancel; and they are the same for
  // all classes of a cell. Source of the sequence: Martin Roberts, The unreasonable effectiveness of quasirandom sequences
  // (2018), with g^5 = g + 1.
  static float rounding_of(const std::array<std::size_t, 3>& window, std::size_t turn) {
    constexpr std::array<double, 4> steps{0.8566748838545029, 0.7338918566271260, 0.6287067210378087, 0.5385972572236101};
    const double at = 0.5 + steps[0] * static_cast<double>(window[0]) + steps[1] * static_cast<double>(window[1]) +
                      steps[2] * static_cast<double>(window[2]) + steps[3] * static_cast<double>(turn);
    return static_cast<float>(std::min(at - std::floor(at), 0.999));
  }
  static void add(float& sum, float weight, float value, float /*rounding*/) { sum += weight * value; }
  static void add(std::uint16_t& sum, float weight, std::uint16_t value, float rounding) {
    const auto more = static_cast<std::uint32_t>(weight * static_cast<float>(value) + rounding);
    sum = static_cast<std::uint16_t>(std::min<std::uint32_t>(sum + more, 65535));
  }

  Box own_;
  std::int64_t row_, plane_, classes_, first_ = 0;  // first_: the plane of planes_[0]
  std::deque<std::vector<T>> planes_;
};

// Interpolation of n cells at `to` cells that cover the same range: cell i is at first[i] + right[i], between two cells or at
// one.
struct LinearPlaces {
  std::vector<std::int64_t> first;
  std::vector<float> right;  // 0 for the last cell
  LinearPlaces(std::int64_t n, std::int64_t to);
};

// The rows and columns of `extents` [D, H, W] that each of `ranks` ranks takes, with all planes. Some boxes may be empty.
std::vector<Box> columns_of_ranks(const Shape& extents, int ranks);
// The cells of a sample of `seen` cells that interpolation at the cells of the box needs, which are of `extents`.
Box needed_cells(const Box& box, const Shape& seen, const Shape& extents);

}  // namespace mpigrad::segmentation
