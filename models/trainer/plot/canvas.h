#pragma once
// Drawing functions of the panels: the few functions of cairo that they need. Lengths in pixels, y downwards.

#include <cairo.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/trainer/plot/colour.h"

namespace mpigrad::plot {

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct TextStyle {
  double size = 15;
  bool bold = false;
  double horizontal = 0, vertical = 0.5;  // the point of the text at (x, y): 0 left or top, 1 right or bottom
  bool upwards = false;                   // rotated by 90 degrees
  Colour colour{0.13, 0.13, 0.15};
};

class Canvas {
 public:
  Canvas(int width, int height);

  void fill(const Rectangle& area, const Colour& colour, double alpha = 1);
  void frame(const Rectangle& area, const Colour& colour, double line = 1);
  // A line through points (x, y), interrupted at points that are not finite.
  void polyline(const std::vector<std::pair<double, double>>& points, const Colour& colour, double line, bool dashed = false);
  void line(double x0, double y0, double x1, double y1, const Colour& colour, double width = 1);
  void dot(double x, double y, double radius, const Colour& colour, double alpha = 1);
  void text(double x, double y, const std::string& text, const TextStyle& style = {});
  double text_width(const std::string& text, const TextStyle& style = {});
  // pixels: rows x columns from the top left, each drawn as a rectangle.
  void image(const Rectangle& area, int rows, int columns, const std::vector<Colour>& pixels);
  // Limits drawing to `area` until unclip().
  void clip(const Rectangle& area);
  void unclip();

  // Writes a temporary file, then renames it.
  void save(const std::filesystem::path& path);

 private:
  void set(const Colour& colour, double alpha = 1);
  void set(const TextStyle& style);

  struct Destroy {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
    void operator()(cairo_t* context) const { cairo_destroy(context); }
  };
  std::unique_ptr<cairo_surface_t, Destroy> surface_;
  std::unique_ptr<cairo_t, Destroy> context_;
};

}  // namespace mpigrad::plot
