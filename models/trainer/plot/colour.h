#pragma once
// Colours, in sRGB from 0 to 1.

#include <cstddef>

namespace mpigrad::plot {

struct Colour {
  double red = 0, green = 0, blue = 0;
};

// From lightness (0 ... 1), chroma and hue (degrees) of the Oklab space (B. Ottosson 2020), in which equal distances look equal;
// colours outside sRGB are clipped.
Colour from_lightness_chroma_hue(double lightness, double chroma, double hue);

// A map for images, t from 0 to 1: night blue, violet, red, orange, pale yellow. Lightness grows evenly, so that it reads the
// same in grey and for every kind of colour vision.
Colour colour_map(double t);

// The colour of the i-th of several lines.
Colour series_colour(std::size_t i);

}  // namespace mpigrad::plot
