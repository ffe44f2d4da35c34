#pragma once
// Functions that draw each kind of panel.

#include "models/trainer/plot/canvas.h"
#include "models/trainer/plot/figure.h"

namespace mpigrad::plot {

// Pixels at the panel's sides that its neighbours do not need, for a label or a scale. Adding them to its width makes the squares
// of a row equal in size.
double extra_width(const Lines& lines);
double extra_width(const Scatter& scatter);
double extra_width(const Image& image);

void draw(Canvas& canvas, const Rectangle& area, const Lines& lines);
void draw(Canvas& canvas, const Rectangle& area, const Scatter& scatter);
void draw(Canvas& canvas, const Rectangle& area, const Image& image);

}  // namespace mpigrad::plot
