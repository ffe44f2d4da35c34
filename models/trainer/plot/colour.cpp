#include "models/trainer/plot/colour.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace mpigrad::plot {

namespace {

double encode(double linear) {
  const double value = std::clamp(linear, 0.0, 1.0);
  return value <= 0.0031308 ? 12.92 * value : 1.055 * std::pow(value, 1 / 2.4) - 0.055;
}

}  // namespace

Colour from_lightness_chroma_hue(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180), b = chroma * std::sin(hue * std::numbers::pi / 180);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

Colour colour_map(double t) {
  struct Anchor {
    double chroma, hue;
  };
  static constexpr std::array<Anchor, 6> anchors{{{0.05, 275}, {0.13, 295}, {0.17, 340}, {0.17, 395}, {0.15, 430}, {0.09, 465}}};
  t = std::isnan(t) ? 0 : std::clamp(t, 0.0, 1.0);
  const double place = t * (anchors.size() - 1);
  const auto i = std::min(static_cast<std::size_t>(place), anchors.size() - 2);
  const double f = place - static_cast<double>(i);
  const auto& from = anchors[i];
  const auto& to = anchors[i + 1];
  return from_lightness_chroma_hue(0.14 + 0.83 * t, from.chroma + f * (to.chroma - from.chroma),
                                   from.hue + f * (to.hue - from.hue));
}

Colour series_colour(std::size_t i) {
  static constexpr std::array<double, 6> hues{250, 45, 150, 330, 95, 200};
  return from_lightness_chroma_hue(i % 2 == 0 ? 0.52 : 0.64, 0.14, hues[i % hues.size()]);
}

}  // namespace mpigrad::plot
