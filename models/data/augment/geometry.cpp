#include "models/data/augment/geometry.h"

#include <algorithm>
#include <limits>
#include <span>

namespace mpigrad::augment {
namespace {

// Output i along one axis is the sum over k < count of weights[i count + k] times input first[i] + k.
template <class T>
struct Taps {
  std::int64_t count = 1;
  std::vector<std::int64_t> first;
  std::vector<T> weights;

  bool nothing(std::int64_t n) const {
    if (static_cast<std::int64_t>(first.size()) != n) return false;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < count; ++k)
        if (weights[static_cast<std::size_t>(i * count + k)] != (first[static_cast<std::size_t>(i)] + k == i ? T{1} : T{0}))
          return false;
    return true;
  }
};

template <class T>
Taps<T> linear_taps(std::int64_t n, double begin, double end, std::int64_t to) {
  Taps<T> taps;
  taps.count = std::min<std::int64_t>(2, n);
  const double step = (end - begin) / static_cast<double>(to);
  const double low = std::max(0.0, begin), high = std::max(low, std::min(static_cast<double>(n), end) - 1);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = std::clamp(begin + (static_cast<double>(i) + 0.5) * step - 0.5, low, high);
    const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(at)), 0, n - taps.count);
    const auto right = static_cast<T>(at - static_cast<double>(first));
    taps.first.push_back(first);
    if (taps.count == 1) taps.weights.push_back(1);
    else taps.weights.push_back(1 - right), taps.weights.push_back(right);
  }
  return taps;
}

template <class T>
Taps<T> area_taps(std::int64_t n, double begin, double end, std::int64_t to) {
  const double step = (end - begin) / static_cast<double>(to);
  if (step <= 1) return linear_taps<T>(n, begin, end, to);
  Taps<T> taps;
  taps.count = std::min(n, static_cast<std::int64_t>(std::ceil(step)) + 1);
  for (std::int64_t i = 0; i < to; ++i) {
    const double from = std::max(0.0, begin + static_cast<double>(i) * step);
    const double till = std::min(static_cast<double>(n), begin + static_cast<double>(i + 1) * step);
    const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(from)), 0, n - taps.count);
    taps.first.push_back(first);
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const auto cell = static_cast<double>(first + k);
      const double covered = std::min(till, cell + 1) - std::max(from, cell);
      taps.weights.push_back(static_cast<T>(std::max(0.0, covered) / (till - from)));
    }
  }
  return taps;
}

// Adds one tap to `inner` outputs at a time: the weighted sums of rows `in`, `in + inner`, ...
void weigh(const float* in, std::int64_t inner, std::span<const float> weights, float* out) {
  for (std::size_t k = 0; k < weights.size(); ++k, in += inner) {
    const float weight = weights[k];
    for (std::int64_t j = 0; j < inner; ++j) out[j] += weight * in[j];
  }
}

void weigh(const double* in, std::int64_t inner, std::span<const double> weights, double* out) {
  for (std::int64_t j = 0; j < inner; ++j) {
    double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] == 0) continue;
      const double value = in[static_cast<std::int64_t>(k) * inner + j];
      sum += weights[k] * value;
      low = std::min(low, value), high = std::max(high, value);
    }
    // The sum of the weights is 1 except for rounding, which could leave the range of the type at its end. A NaN stays.
    out[j] = low <= high ? std::clamp(sum, low, high) : sum;
  }
}

template <class T>
BasicSample<T> along_axis(const BasicSample<T>& x, int axis, const Taps<T>& taps) {
  const auto to = static_cast<std::int64_t>(taps.first.size()), n = x.extents[axis];
  Shape extents = x.extents;
  extents[axis] = to;
  BasicSample<T> y(extents, x.channels);
  const auto outer = x.extents.elements(0, axis), inner = x.extents.elements(axis + 1, 3) * x.channels;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < to; ++i)
      weigh(x.values.data() + (o * n + taps.first[static_cast<std::size_t>(i)]) * inner, inner,
            {taps.weights.data() + i * taps.count, static_cast<std::size_t>(taps.count)}, y.values.data() + (o * to + i) * inner);
  return y;
}

template <class T>
BasicSample<T> resized_in(const BasicSample<T>& x, const Window& window, const Shape& to, Filter filter) {
  require(to.rank() == 3 && to.elements() > 0, "[augment] extents must be [D, H, W], at least 1 each: {}", to);
  BasicSample<T> y;
  const BasicSample<T>* from = &x;
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    require(window.begin[i] >= 0 && window.begin[i] < window.end[i] && window.end[i] <= static_cast<double>(x.extents[a]),
            "[augment] the window [{}, {}) along axis {} is not inside {} cells", window.begin[i], window.end[i], a,
            x.extents[a]);
    const bool whole_axis = window.begin[i] == 0 && window.end[i] == static_cast<double>(x.extents[a]);
    if (filter == Filter::cubic && x.extents[a] > 1 && static_cast<double>(to[a]) >= window.end[i] - window.begin[i]) {
      if (!whole_axis || to[a] != x.extents[a]) y = splined(*from, a, window.begin[i], window.end[i], to[a]), from = &y;
      continue;
    }
    const auto taps =
        (filter == Filter::linear ? linear_taps<T> : area_taps<T>)(x.extents[a], window.begin[i], window.end[i], to[a]);
    if (!taps.nothing(x.extents[a])) y = along_axis(*from, a, taps), from = &y;
  }
  return from == &x ? x : y;
}

}  // namespace

Window whole(const Shape& extents) {
  Window window;
  for (int a = 0; a < 3; ++a) window.end[static_cast<std::size_t>(a)] = static_cast<double>(extents[a]);
  return window;
}

Sample resized(const Sample& x, const Window& window, const Shape& to, Filter filter) {
  return resized_in(x, window, to, filter);
}
WideSample resized(const WideSample& x, const Window& window, const Shape& to, Filter filter) {
  return resized_in(x, window, to, filter);
}

std::vector<std::int32_t> resized_labels(const std::vector<std::int32_t>& labels, const Shape& extents, const Shape& to) {
  std::array<Taps<double>, 3> taps;
  for (int a = 0; a < 3; ++a)
    taps[static_cast<std::size_t>(a)] = area_taps<double>(extents[a], 0, static_cast<double>(extents[a]), to[a]);
  struct Score {
    std::int32_t label;
    double weight;
  };
  std::vector<std::int32_t> result(static_cast<std::size_t>(to.elements()));
  const auto weight = [&](std::size_t axis, std::int64_t i, std::int64_t k) {
    return taps[axis].weights[static_cast<std::size_t>(i * taps[axis].count + k)];
  };
  const auto cell = [&](std::size_t axis, std::int64_t i, std::int64_t k) {
    return taps[axis].first[static_cast<std::size_t>(i)] + k;
  };
#pragma omp parallel for schedule(static) if (to.elements() > (1 << 12))
  for (std::int64_t d = 0; d < to[0]; ++d) {
    std::vector<Score> scores;
    for (std::int64_t h = 0; h < to[1]; ++h)
      for (std::int64_t w = 0; w < to[2]; ++w) {
        scores.clear();
        for (std::int64_t kd = 0; kd < taps[0].count; ++kd)
          for (std::int64_t kh = 0; kh < taps[1].count; ++kh)
            for (std::int64_t kw = 0; kw < taps[2].count; ++kw) {
              const double part = weight(0, d, kd) * weight(1, h, kh) * weight(2, w, kw);
              if (part == 0) continue;
              const auto at = (cell(0, d, kd) * extents[1] + cell(1, h, kh)) * extents[2] + cell(2, w, kw);
              const auto label = labels[static_cast<std::size_t>(at)];
              const auto known =
                  std::find_if(scores.begin(), scores.end(), [&](const Score& each) { return each.label == label; });
              if (known == scores.end()) scores.push_back({label, part});
              else known->weight += part;
            }
        const auto best =
            std::max_element(scores.begin(), scores.end(), [](const Score& a, const Score& b) { return a.weight < b.weight; });
        result[static_cast<std::size_t>((d * to[1] + h) * to[2] + w)] = best->label;
      }
  }
  return result;
}

Window cover_window(const Shape& extents, const Shape& to) {
  double factor = 0;  // of the axes longer than 1 cell; a picture's D stays 1
  for (int a = 0; a < 3; ++a)
    if (extents[a] != 1 || to[a] != 1) factor = std::max(factor, static_cast<double>(to[a]) / static_cast<double>(extents[a]));
  Window window = whole(extents);
  for (int a = 0; a < 3; ++a) {
    if (extents[a] == 1 && to[a] == 1) continue;
    const auto i = static_cast<std::size_t>(a);
    const double left_out = std::max(0.0, static_cast<double>(extents[a]) - static_cast<double>(to[a]) / factor);
    const double margin = factor == 1 ? std::floor(left_out / 2) : left_out / 2;
    window.begin[i] += margin, window.end[i] -= left_out - margin;
  }
  return window;
}

Middle middle_of(const Shape& extents, const Shape& to) {
  Middle middle;
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    middle.count[i] = std::min(extents[a], to[a]);
    middle.from[i] = (extents[a] - middle.count[i]) / 2, middle.at[i] = (to[a] - middle.count[i]) / 2;
  }
  return middle;
}

Sample fitted(const Sample& x, const Shape& to, Fit fit) {
  if (x.extents == to) return x;
  if (fit == Fit::cover) return resized(x, cover_window(x.extents, to), to, Filter::area);
  Sample y(to, x.channels);
  const auto [from, at, count] = middle_of(x.extents, to);
  const auto cell = [](const Sample& s, std::int64_t d, std::int64_t h, std::int64_t w) {
    return ((d * s.extents[1] + h) * s.extents[2] + w) * s.channels;
  };
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < count[1]; ++h)
      std::copy_n(x.values.data() + cell(x, from[0] + d, from[1] + h, from[2]), count[2] * x.channels,
                  y.values.data() + cell(y, at[0] + d, at[1] + h, at[2]));
  return y;
}

Sample permuted(const Sample& x, const data::Augmentation& map) {
  Shape to{0, 0, 0};
  for (int a = 0; a < 3; ++a) to[a] = x.extents[map.axes[static_cast<std::size_t>(a)]];
  Sample y(to, x.channels);
  for (const auto& piece : data::pieces_of({Shape{0, 0, 0}, to}, x.extents, map))
    data::copy_piece(piece, {{Shape{0, 0, 0}, x.extents}, DType::float32, x.values.data()}, to, x.channels, data::Transform::none,
                     DType::float32, y.values.data(), [] { return std::string("a sample"); });
  return y;
}

Sample flipped(const Sample& x, int axis) {
  data::Augmentation map;
  map.flip[static_cast<std::size_t>(checked_dimension("augment", axis, 3))] = true;
  return permuted(x, map);
}

Sample turned(const Sample& x, int turns, int a, int b) {
  require(a != b, "[augment] a turn needs two different axes, got {} twice", a);
  const auto i = static_cast<std::size_t>(checked_dimension("augment", a, 3));
  const auto j = static_cast<std::size_t>(checked_dimension("augment", b, 3));
  data::Augmentation map;
  const int quarter = ((turns % 4) + 4) % 4;
  if (quarter % 2 == 1) std::swap(map.axes[i], map.axes[j]);
  map.flip[i] = quarter == 1 || quarter == 2;
  map.flip[j] = quarter == 2 || quarter == 3;
  return permuted(x, map);
}

}  // namespace mpigrad::augment
