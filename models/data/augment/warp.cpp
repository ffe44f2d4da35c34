#include <algorithm>
#include <numbers>
#include <optional>

#include "models/data/augment/geometry.h"

namespace mpigrad::augment {
namespace {

// The four cubic B-splines that are not zero at t in [0, 1) between two control points.
std::array<float, 4> splines(double t) {
  const double s = 1 - t;
  return {static_cast<float>(s * s * s / 6), static_cast<float>((3 * t * t * t - 6 * t * t + 4) / 6),
          static_cast<float>((3 * s * s * s - 6 * s * s + 4) / 6), static_cast<float>(t * t * t / 6)};
}

// Displacements (x, y), in pixels of the output.
class Displacement {
 public:
  Displacement(const Elastic& elastic, std::int64_t height, std::int64_t width)
      : spacing_(elastic.spacing * static_cast<double>(width)) {
    // Control points closer than a pixel would produce noise, not a deformation.
    require(spacing_ >= 1, "[augment] a spacing of {} of the width is less than one of {} pixels", elastic.spacing, width);
    rows_ = static_cast<std::int64_t>(static_cast<double>(height - 1) / spacing_) + 4;
    columns_ = static_cast<std::int64_t>(static_cast<double>(width - 1) / spacing_) + 4;
    const double amplitude = elastic.amplitude * static_cast<double>(width);
    Draws draws(elastic.random);
    points_.resize(static_cast<std::size_t>(2 * rows_ * columns_));
    for (auto& value : points_) value = static_cast<float>(amplitude * draws.normal());
    row_.resize(static_cast<std::size_t>(2 * columns_));
    for (std::int64_t w = 0; w < width; ++w) {
      const double at = static_cast<double>(w) / spacing_;
      first_.push_back(static_cast<std::int64_t>(at));
      weights_.push_back(splines(at - std::floor(at)));
    }
  }

  void begin_row(std::int64_t h) {
    const double at = static_cast<double>(h) / spacing_;
    const auto weights = splines(at - std::floor(at));
    const float* points = points_.data() + 2 * columns_ * static_cast<std::int64_t>(at);
    for (std::int64_t j = 0; j < 2 * columns_; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < 4; ++k) sum += weights[static_cast<std::size_t>(k)] * points[2 * columns_ * k + j];
      row_[static_cast<std::size_t>(j)] = sum;
    }
  }
  std::array<float, 2> at(std::int64_t w) const {
    const auto& weights = weights_[static_cast<std::size_t>(w)];
    const float* row = row_.data() + 2 * first_[static_cast<std::size_t>(w)];
    std::array<float, 2> sum{};
    for (std::size_t k = 0; k < 4; ++k) sum[0] += weights[k] * row[2 * k], sum[1] += weights[k] * row[2 * k + 1];
    return sum;
  }

 private:
  double spacing_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<float> points_, row_;
  std::vector<std::int64_t> first_;
  std::vector<std::array<float, 4>> weights_;
};

// Bilinear at (y, x), zero outside: cells beyond the edge count as zeros.
void sample_at(const Sample& in, double y, double x, float* out) {
  const auto height = in.extents[1], width = in.extents[2], channels = in.channels;
  if (!(y > -1 && x > -1 && y < static_cast<double>(height) && x < static_cast<double>(width))) return;  // out is zero already
  const auto h = static_cast<std::int64_t>(y + 1) - 1, w = static_cast<std::int64_t>(x + 1) - 1;         // floors
  const auto b = static_cast<float>(y - static_cast<double>(h)), r = static_cast<float>(x - static_cast<double>(w));
  const float* corner = in.values.data() + (h * width + w) * channels;
  const float weights[4] = {(1 - b) * (1 - r), (1 - b) * r, b * (1 - r), b * r};
  const bool top = h >= 0, bottom = h + 1 < height, left = w >= 0, right = w + 1 < width;
  for (std::int64_t c = 0; c < channels; ++c) {
    float value = 0;
    if (top && left) value += weights[0] * corner[c];
    if (top && right) value += weights[1] * corner[channels + c];
    if (bottom && left) value += weights[2] * corner[width * channels + c];
    if (bottom && right) value += weights[3] * corner[(width + 1) * channels + c];
    out[c] = value;
  }
}

}  // namespace

Sample warped(const Sample& x, const Affine& affine, const Elastic& elastic, const Shape& to) {
  require(x.extents[0] == 1 && to.rank() == 3 && to[0] == 1 && to.elements() > 0,
          "[augment] affine and elastic maps need pictures [1, H, W]: input {}, output {}", x.extents, to);
  require(affine.scale_x > 0 && affine.scale_y > 0, "[augment] scales must be positive: {} and {}", affine.scale_x,
          affine.scale_y);
  require(std::abs(affine.shear) < 90, "[augment] a shear must be less than 90 degrees: {}", affine.shear);
  constexpr double degree = std::numbers::pi / 180;
  const double c = std::cos(affine.rotation * degree), s = std::sin(affine.rotation * degree),
               k = std::tan(affine.shear * degree);
  // A^-1 = diag(1 / scale) [1 -k; 0 1] R^T, for columns (x, y)
  const double xx = (c + k * s) / affine.scale_x, xy = (s - k * c) / affine.scale_x;
  const double yx = -s / affine.scale_y, yy = c / affine.scale_y;
  const auto height = to[1], width = to[2];
  const double ratio_x = static_cast<double>(x.extents[2]) / static_cast<double>(width);
  const double ratio_y = static_cast<double>(x.extents[1]) / static_cast<double>(height);
  const double from_x = static_cast<double>(x.extents[2] - 1) / 2, from_y = static_cast<double>(x.extents[1] - 1) / 2;
  const double to_x = static_cast<double>(width - 1) / 2 + affine.move_x * static_cast<double>(width);
  const double to_y = static_cast<double>(height - 1) / 2 + affine.move_y * static_cast<double>(height);

  std::optional<Displacement> displacement;
  if (elastic.amplitude != 0) displacement.emplace(elastic, height, width);
  Sample y(to, x.channels);
  float* out = y.values.data();
  for (std::int64_t h = 0; h < height; ++h) {
    if (displacement) displacement->begin_row(h);
    for (std::int64_t w = 0; w < width; ++w, out += x.channels) {
      double px = static_cast<double>(w) - to_x, py = static_cast<double>(h) - to_y;
      if (displacement) {
        const auto moved = displacement->at(w);
        px += static_cast<double>(moved[0]), py += static_cast<double>(moved[1]);
      }
      sample_at(x, from_y + ratio_y * (yx * px + yy * py), from_x + ratio_x * (xx * px + xy * py), out);
    }
  }
  return y;
}

}  // namespace mpigrad::augment
