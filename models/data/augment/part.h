#pragma once
// Changes to the values of a window of a volume of which a rank may have a part only. The numbers of a cell depend on its place
// in the whole window, so that parts agree bit for bit where they overlap.

#include <span>
#include <vector>

#include "framework/tensor/layout.h"
#include "models/data/augment/sample.h"

namespace mpigrad::augment {

// The values of one channel of a whole volume, for changes that need its range, mean and deviation. Every pointwise change is
// applied to them, too.
struct Tones {
  static constexpr std::int64_t most = 4096;  // values that are kept of a channel, from cells evenly spread over the volume
  float least = 0, greatest = 0;              // of all cells
  std::vector<float> some{};

  double mean() const;
  double deviation() const;
};

struct Part {
  Sample values{};             // [d, h, w, C]
  Box box{};                   // its cells in the window
  Shape window{};              // [D, H, W]
  std::vector<Tones> tones{};  // of each channel; none: no step needs them (Recipe::needs_tones)
};
// A whole sample as a part, with its tones.
Part whole_part(Sample sample);

// x <- x + deviation n, n standard normal, keyed by the place in the window and the channel: Box and Muller on Philox words.
void noise(Part& x, double deviation, const Philox& random);
// blur() of augment/intensity.h of one channel, mirrored at the window's ends. Needs the cells within blur_reach(sigma).
void blur(Part& x, std::int64_t channel, double sigma);
std::int64_t blur_reach(double sigma);
// The channel with factor times fewer cells along each axis longer than 1, each from the nearest cell, interpolated back by
// Catmull and Rom's cubic. Needs the cells within low_resolution_reach(factor). factor: at least 1.
void low_resolution(Part& x, std::int64_t channel, double factor);
std::int64_t low_resolution_reach(double factor);

// Pointwise changes of one channel and of its tones.
// x <- f x
void brighten(Part& x, std::int64_t channel, double factor);
// x <- f (x - m) + m, clamped to the volume's range; m is its mean.
void contrast(Part& x, std::int64_t channel, double factor);
// x <- r max((x - a) / r, 0)^exponent + a, with the volume's least value a and its range r, brought back to the volume's mean and
// deviation; with `inverted` of -x, and negated again.
void gamma(Part& x, std::int64_t channel, double exponent, bool inverted);

}  // namespace mpigrad::augment
