#pragma once
// Augmentations of values in place. Values are expected in [0, 1]; functions that follow torchvision's definitions clamp to this
// range. Pictures of 3 channels are red, green and blue; 1 channel is grey.

#include <span>

#include "framework/tensor/layout.h"
#include "models/data/augment/sample.h"

namespace mpigrad::augment {

// Luma of ITU-R BT.601: grey = 0.299 R + 0.587 G + 0.114 B.

// x <- clamp(f x)
void brightness(Sample& x, double factor);
// x <- clamp(f x + (1 - f) m), m the mean of the grey picture
void contrast(Sample& x, double factor);
// x <- clamp(f x + (1 - f) grey(x)); no effect for 1 channel. Error: numbers of channels other than 1 and 3.
void saturation(Sample& x, double factor);
// Turns the hue (of hue, saturation and value; Smith 1978) by `turn` of the circle, -1/2 to 1/2. Channels as for saturation.
void hue(Sample& x, double turn);
// All 3 channels <- grey(x); no effect for 1 channel.
void grey(Sample& x);

// x <- scale x + shift; not clamped.
void linear(Sample& x, double scale, double shift);
// x <- max(x, 0)^exponent
void gamma(Sample& x, double exponent);
// x <- x + deviation n, with n standard normal and keyed by the value's index: Box and Muller on Philox words.
void noise(Sample& x, double deviation, const Philox& random);
// For each channel x <- (x - mean) / deviation; one mean and deviation, or one for each channel.
void normalise(Sample& x, std::span<const double> mean, std::span<const double> deviation);

// Convolution with exp(-k^2 / 2 sigma^2), |k| <= ceil(3 sigma), normalised to sum 1, along each axis longer than 1; edges are
// mirrored (without repeating the edge cell). sigma in cells; 0 has no effect.
void blur(Sample& x, double sigma);
// Sets all channels of the cells of the box to value.
void erase(Sample& x, const Box& box, double value);

}  // namespace mpigrad::augment
