#include "models/data/augment/intensity.h"

#include <algorithm>
#include <utility>

#include "models/data/augment/part.h"

namespace mpigrad::augment {
namespace {

float unit(float value) { return std::clamp(value, 0.0F, 1.0F); }

float luma(const float* rgb) { return 0.299F * rgb[0] + 0.587F * rgb[1] + 0.114F * rgb[2]; }

// True for 3 channels. Error: neither 1 nor 3 channels.
bool has_colour(const Sample& x, const char* what) {
  require(x.channels == 1 || x.channels == 3, "[augment] {} needs 1 or 3 channels, not {}", what, x.channels);
  return x.channels == 3;
}

// Hue as a fraction of the circle; saturation and value in [0, 1].
void turn_hue(float* rgb, float turn) {
  const float value = std::max({rgb[0], rgb[1], rgb[2]}), least = std::min({rgb[0], rgb[1], rgb[2]});
  const float chroma = value - least;
  if (chroma <= 0) return;
  float sixth = 0;  // sixths of the circle, from red
  if (value == rgb[0]) sixth = (rgb[1] - rgb[2]) / chroma;
  else if (value == rgb[1]) sixth = 2 + (rgb[2] - rgb[0]) / chroma;
  else sixth = 4 + (rgb[0] - rgb[1]) / chroma;
  sixth += 6 * turn;
  // f(n) = V - C max(0, min(k, 4 - k, 1)) with k = (n + H) mod 6, for n = 5, 3, 1
  for (int c = 0; c < 3; ++c) {
    float k = std::fmod(static_cast<float>(5 - 2 * c) + sixth, 6.0F);
    if (k < 0) k += 6;
    rgb[c] = value - chroma * std::max(0.0F, std::min({k, 4 - k, 1.0F}));
  }
}

}  // namespace

void brightness(Sample& x, double factor) {
  const auto f = static_cast<float>(factor);
  for (auto& value : x.values) value = unit(f * value);
}

void contrast(Sample& x, double factor) {
  double sum = 0;
  std::size_t n = x.values.size();
  if (x.channels == 3) {
    n /= 3;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(luma(x.values.data() + 3 * i));
  } else {
    for (const auto value : x.values) sum += static_cast<double>(value);
  }
  const auto f = static_cast<float>(factor), rest = (1 - f) * static_cast<float>(sum / static_cast<double>(n));
  for (auto& value : x.values) value = unit(f * value + rest);
}

void saturation(Sample& x, double factor) {
  if (!has_colour(x, "saturation")) return;
  const auto f = static_cast<float>(factor);
  for (std::size_t i = 0; i < x.values.size(); i += 3) {
    float* rgb = x.values.data() + i;
    const float rest = (1 - f) * luma(rgb);
    for (int c = 0; c < 3; ++c) rgb[c] = unit(f * rgb[c] + rest);
  }
}

void hue(Sample& x, double turn) {
  require(turn >= -0.5 && turn <= 0.5, "[augment] a turn of the hue must be from -1/2 to 1/2, not {}", turn);
  if (!has_colour(x, "hue") || turn == 0) return;
  for (std::size_t i = 0; i < x.values.size(); i += 3) turn_hue(x.values.data() + i, static_cast<float>(turn));
}

void grey(Sample& x) {
  if (!has_colour(x, "grey")) return;
  for (std::size_t i = 0; i < x.values.size(); i += 3) {
    float* rgb = x.values.data() + i;
    rgb[0] = rgb[1] = rgb[2] = luma(rgb);
  }
}

void linear(Sample& x, double scale, double shift) {
  const auto a = static_cast<float>(scale), b = static_cast<float>(shift);
  for (auto& value : x.values) value = a * value + b;
}

void gamma(Sample& x, double exponent) {
  require(exponent > 0, "[augment] the exponent must be positive, not {}", exponent);
  if (exponent == 1) return;
  const auto e = static_cast<float>(exponent);
  for (auto& value : x.values) value = std::pow(std::max(value, 0.0F), e);
}

void noise(Sample& x, double deviation, const Philox& random) {
  Part part{.values = std::move(x)};
  part.window = part.values.extents, part.box = {Shape{0, 0, 0}, part.window};
  noise(part, deviation, random);
  x = std::move(part.values);
}

void normalise(Sample& x, std::span<const double> mean, std::span<const double> deviation) {
  const auto channels = static_cast<std::size_t>(x.channels);
  require((mean.size() == 1 || mean.size() == channels) && deviation.size() == mean.size(),
          "[augment] {} means and {} deviations for {} channels", mean.size(), deviation.size(), channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto k = mean.size() == 1 ? 0 : c;
    require(deviation[k] > 0, "[augment] a deviation must be positive, not {}", deviation[k]);
    const auto m = static_cast<float>(mean[k]), s = static_cast<float>(1 / deviation[k]);
    for (std::size_t i = c; i < x.values.size(); i += channels) x.values[i] = (x.values[i] - m) * s;
  }
}

void blur(Sample& x, double sigma) {
  Part part{.values = std::move(x)};
  part.window = part.values.extents, part.box = {Shape{0, 0, 0}, part.window};
  for (std::int64_t c = 0; c < part.values.channels; ++c) blur(part, c, sigma);
  x = std::move(part.values);
}

void erase(Sample& x, const Box& box, double value) {
  for (int a = 0; a < 3; ++a)
    require(box.begin[a] >= 0 && box.begin[a] <= box.end[a] && box.end[a] <= x.extents[a],
            "[augment] the box {} is not inside {}", to_string(box), x.extents);
  const auto count = box.end[2] - box.begin[2];
  for (auto d = box.begin[0]; d < box.end[0]; ++d)
    for (auto h = box.begin[1]; h < box.end[1]; ++h)
      std::fill_n(x.values.begin() + ((d * x.extents[1] + h) * x.extents[2] + box.begin[2]) * x.channels, count * x.channels,
                  static_cast<float>(value));
}

}  // namespace mpigrad::augment
