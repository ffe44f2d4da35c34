// Sums of 16 bits over many windows and mirrored turns, next to sums in float32.

#include "models/evaluate/window_sums.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/tensor/random.h"

using namespace mpigrad;
using segmentation::Windows;
using segmentation::WindowSums;

namespace {

constexpr std::size_t classes = 105;

const Shape extents{15, 8, 15}, window{8, 8, 8};

// Sums of probabilities that differ a little from window to window, as [cells, classes].
template <class T>
std::vector<double> all_sums(const Windows& windows, std::size_t turns) {
  const auto cells = static_cast<std::size_t>(extents.elements());
  std::vector<float> base(cells * classes);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    auto* p = base.data() + cell * classes;
    for (std::size_t c = 0; c < classes; ++c) p[c] = static_cast<float>(std::exp(Philox{7, cell}.normal(c)));
    const float total = std::accumulate(p, p + classes, 0.0F);
    for (std::size_t c = 0; c < classes; ++c) p[c] /= total;
  }
  WindowSums<T> sums({{0, 0, 0}, extents}, classes);
  std::vector<T> values(static_cast<std::size_t>(window.elements()) * classes);
  std::uint32_t random = 1;
  for (std::size_t i = 0; i < windows.size(); ++i)
    for (std::size_t turn = 0; turn < turns; ++turn) {
      const auto place = windows.place(i);
      const Box part{{place[0], place[1], place[2]}, {place[0] + window[0], place[1] + window[1], place[2] + window[2]}};
      auto* next = values.data();
      for (auto d = part.begin[0]; d < part.end[0]; ++d)
        for (auto h = part.begin[1]; h < part.end[1]; ++h)
          for (auto w = part.begin[2]; w < part.end[2]; ++w) {
            const auto* p = base.data() + static_cast<std::size_t>((d * extents[1] + h) * extents[2] + w) * classes;
            for (std::size_t c = 0; c < classes; ++c) {
              random = random * 1664525 + 1013904223;
              *next++ = segmentation::stored_probability<T>(p[c] * (0.95F + 0.1F * static_cast<float>(random >> 8) * 0x1p-24F));
            }
          }
      sums.add(windows, i, part, 1 / static_cast<double>(turns), values.data(), turn);
    }
  std::vector<double> result;
  sums.finish(extents[0], [&](std::int64_t, const std::vector<T>& plane) {
    for (const auto x : plane) result.push_back(static_cast<double>(x) / (std::is_same_v<T, float> ? 1 : 65535));
  });
  return result;
}

}  // namespace

TEST_CASE("volumes: sums of 16 bits of 105 classes stay near those of float32, however many windows and turns a cell has") {
  struct Sums {
    double overlap;
    std::size_t turns;
  };
  for (const auto& [overlap, turns] : {Sums{0, 1}, {0.5, 1}, {0.5, 8}, {0.75, 8}, {0.9, 8}}) {
    INFO("overlap " << overlap << ", turns " << turns);
    const Windows windows(extents, {.window = window, .overlap = overlap});
    const auto wide = all_sums<float>(windows, turns), narrow = all_sums<std::uint16_t>(windows, turns);
    double apart = 0, mean = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const double difference = narrow[i] - wide[i];
      apart = std::max(apart, std::abs(difference)), mean += difference / static_cast<double>(wide.size());
    }
    // Rounding to the nearest number, all parts of a sum in the same direction, was up to 1e-3 apart and 8e-5 in the mean.
    CHECK(apart < 4e-4);
    CHECK(std::abs(mean) < 2e-5);
  }
}
