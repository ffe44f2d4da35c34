#pragma once
// How each kind of panel is drawn.

#include "models/trainer/plot/canvas.h"
#include "models/trainer/plot/figure.h"

namespace mpigrad::plot {

// Pixels beside the panel's square that its neighbours do not need, for a label or a scale: with them added to its width, the
// squares of a row are of one size.
double extra_width(const Lines& lines);
double extra_width(const Scatter& scatter);
double extra_width(const Image& image);

void draw(Canvas& canvas, const Rectangle& area, const Lines& lines);
void draw(Canvas& canvas, const Rectangle& area, const Scatter& scatter);
void draw(Canvas& canvas, const Rectangle& area, const Image& image);

}  // namespace mpigrad::plot
