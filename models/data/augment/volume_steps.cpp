// Steps of recipes for volumes, and for windows of volumes with labels of which each rank has a part.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/data/augment/recipe.h"

namespace mpigrad::augment {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) result[i][j] = a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j];
  return result;
}

// A rotation in the plane of the axes a and b. Turns by multiples of 90 degrees are exact.
Matrix rotation(std::size_t a, std::size_t b, double degrees) {
  const double angle = degrees * std::numbers::pi / 180;
  const auto exact = [](double x) { return std::abs(x - std::round(x)) < 1e-12 ? std::round(x) : x; };
  const double c = exact(std::cos(angle)), s = exact(std::sin(angle));
  auto result = data::Motion{}.matrix;
  result[a][a] = result[b][b] = c, result[a][b] = -s, result[b][a] = s;
  return result;
}

// A whole sample through a motion, as a window of itself.
void move_whole(Sample& x, const std::function<void(data::Motion&, const Philox&)>& move, const Philox& random) {
  data::Motion motion{.window = x.extents};
  move(motion, random);
  if (!motion.resamples()) return;
  const data::Deformation deformation(motion, {}, {}, x.extents);
  const Box block{Shape{0, 0, 0}, x.extents};
  const auto box = deformation.needed(block);
  const auto extents = box.extents();
  std::vector<float> needed(static_cast<std::size_t>(extents.elements() * x.channels));
  for (std::int64_t d = 0; d < extents[0]; ++d)
    for (std::int64_t h = 0; h < extents[1]; ++h)
      std::copy_n(
          x.values.data() + (((box.begin[0] + d) * x.extents[1] + box.begin[1] + h) * x.extents[2] + box.begin[2]) * x.channels,
          extents[2] * x.channels, needed.data() + (d * extents[1] + h) * extents[2] * x.channels);
  deformation.values(block, x.channels, needed.data(), x.values.data());
}

Step moving(std::string text, std::function<void(data::Motion&, const Philox&)> move) {
  Step step{.text = std::move(text), .apply = [move](Sample& x, const Philox& random) { move_whole(x, move, random); }};
  step.move = std::move(move);
  return step;
}

// change(part, channel, draws) for each channel, with numbers of its own.
template <class F>
Step changing_channels(std::string text, double probability, F change) {
  auto all = [probability, change](Part& x, const Philox& random) {
    for (std::int64_t c = 0; c < x.values.channels; ++c) {
      Draws draws(random.child(static_cast<std::uint64_t>(c)));
      if (draws.uniform(0, 1) < probability) change(x, c, draws);
    }
  };
  Step step{.text = std::move(text), .apply = [all](Sample& x, const Philox& random) {
              auto part = whole_part(std::move(x));
              all(part, random);
              x = std::move(part.values);
            }};
  step.change = all;
  return step;
}

void require_factors(const Range& range, const char* what) {
  require(range.low > 0 && range.low <= range.high && std::isfinite(range.high), "[augment] {} from {} to {}", what, range.low,
          range.high);
}

std::string words_of(const Range& range) { return fmt::format("{:.4g} to {:.4g}", range.low, range.high); }

}  // namespace

Step random_rotation(double degrees, int axis) {
  require(degrees >= 0 && degrees <= 360, "[augment] a rotation by up to {} degrees; at most 360", degrees);
  require(axis >= -1 && axis < 3, "[augment] a rotation around axis {}; the axes are 0 (D), 1 (H) and 2 (W)", axis);
  return moving(fmt::format("rotation (degrees {:.4g}{})", degrees, axis < 0 ? "" : fmt::format(", axis {}", axis)),
                [=](data::Motion& motion, const Philox& random) {
                  Draws draws(random);
                  for (int around = 0; around < 3; ++around) {
                    const double angle = draws.uniform(-degrees, degrees);
                    const int a = (around + 1) % 3, b = (around + 2) % 3;
                    if ((axis >= 0 && axis != around) || motion.window[a] == 1 || motion.window[b] == 1) continue;
                    motion.matrix =
                        product(motion.matrix, rotation(static_cast<std::size_t>(a), static_cast<std::size_t>(b), angle));
                  }
                });
}

Step random_scale(Range factor) {
  require_factors(factor, "the factor of a scale");
  return moving(fmt::format("scale ({})", words_of(factor)), [=](data::Motion& motion, const Philox& random) {
    const double inverse = 1 / Draws(random).uniform(factor.low, factor.high);
    Matrix scale{};
    for (std::size_t a = 0; a < 3; ++a) scale[a][a] = motion.window[static_cast<int>(a)] == 1 ? 1 : inverse;
    motion.matrix = product(motion.matrix, scale);
  });
}

Step random_elastic(double amplitude, double spacing) {
  require(amplitude >= 0 && std::isfinite(amplitude) && spacing > 0 && std::isfinite(spacing),
          "[augment] an elastic displacement of up to {} cells, with points {} cells apart", amplitude, spacing);
  auto step = moving(fmt::format("elastic (amplitude {:.4g}, spacing {:.4g})", amplitude, spacing),
                     [=](data::Motion& motion, const Philox& random) {
                       motion.elastic = data::Elastic{.amplitude = amplitude, .spacing = spacing}, motion.random = random;
                     });
  step.elastic = true;
  return step;
}

Step cubic_values() {
  return moving("cubic", [](data::Motion& motion, const Philox&) { motion.cubic = true; });
}

Step labels_by_score() {
  return moving("labels by score", [](data::Motion& motion, const Philox&) { motion.by_score = true; });
}

Step random_brightness(Range factor) {
  require_factors(factor, "the factor of a brightness");
  return changing_channels(fmt::format("brightness ({})", words_of(factor)), 1, [=](Part& x, std::int64_t channel, Draws& draws) {
    brighten(x, channel, draws.uniform(factor.low, factor.high));
  });
}

Step random_contrast(Range factor) {
  require_factors(factor, "the factor of a contrast");
  auto step = changing_channels(
      fmt::format("contrast ({})", words_of(factor)), 1,
      [=](Part& x, std::int64_t channel, Draws& draws) { contrast(x, channel, draws.uniform(factor.low, factor.high)); });
  step.needs_tones = true;
  return step;
}

Step random_gamma(Range exponent, bool inverted) {
  require_factors(exponent, "the exponent of a gamma");
  auto step = changing_channels(fmt::format("gamma ({}{})", words_of(exponent), inverted ? ", inverted" : ""), 1,
                                [=](Part& x, std::int64_t channel, Draws& draws) {
                                  gamma(x, channel, draws.uniform(exponent.low, exponent.high), inverted);
                                });
  step.needs_tones = true;
  return step;
}

Step random_low_resolution(Range factor) {
  require_factors(factor, "the factor of a low resolution");
  require(factor.low >= 1 && factor.high <= 64, "[augment] the factor of a low resolution is from 1 to 64, not from {} to {}",
          factor.low, factor.high);
  auto step = changing_channels(
      fmt::format("low resolution ({})", words_of(factor)), 0.5,
      [=](Part& x, std::int64_t channel, Draws& draws) { low_resolution(x, channel, draws.uniform(factor.low, factor.high)); });
  step.reach = low_resolution_reach(factor.high);
  return step;
}

Step random_blur_of_channels(Range sigma) {
  require_factors(sigma, "the width of a blur");
  auto step = changing_channels(
      fmt::format("blur of channels (sigma {})", words_of(sigma)), 0.5,
      [=](Part& x, std::int64_t channel, Draws& draws) { blur(x, channel, draws.uniform(sigma.low, sigma.high)); });
  step.reach = blur_reach(sigma.high);
  return step;
}

Recipe nnunet() {
  return {with(0.2, random_rotation()),
          with(0.2, random_scale()),
          with(0.15, random_noise({0, 0.1})),
          with(0.2, random_blur_of_channels()),
          with(0.15, random_brightness()),
          with(0.15, random_contrast()),
          with(0.25, random_low_resolution()),
          with(0.15, random_gamma({0.7, 1.5}, true)),
          with(0.15, random_gamma()),
          random_flip(0),
          random_flip(1),
          random_flip(2)};
}

}  // namespace mpigrad::augment
