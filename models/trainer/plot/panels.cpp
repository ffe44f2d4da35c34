#include "models/trainer/plot/panels.h"

#include <algorithm>
#include <cmath>

#include "models/trainer/plot/axis.h"

namespace mpigrad::plot {

namespace {

constexpr Colour ink{0.13, 0.13, 0.15}, faint{0.90, 0.90, 0.92}, fainter{0.95, 0.95, 0.96}, border{0.55, 0.55, 0.58};
constexpr double title_height = 30, tick_size = 14, label_size = 15;
constexpr double label_room = 26, tick_room = 50, bar_room = 84, note_height = 18;

Colour colour_of(const std::vector<Series>& series, std::size_t i) { return series[i].colour.value_or(series_colour(i)); }

void draw_title(Canvas& canvas, const Rectangle& area, const std::string& title) {
  canvas.text(area.x + area.width / 2, area.y + title_height / 2 - 3, title, {.size = 16, .bold = true, .horizontal = 0.5});
}

double widest_label(Canvas& canvas, const Axis& axis) {
  double width = 0;
  for (const auto& tick : axis.ticks) width = std::max(width, canvas.text_width(tick.label, {.size = tick_size}));
  return width;
}

// A frame with ticks, and the mapping of data into it.
struct Plane {
  Rectangle inside;
  Axis x, y;
  double left(double value) const { return inside.x + x.position(value) * inside.width; }
  double top(double value) const { return inside.bottom() - y.position(value) * inside.height; }
};

Plane draw_plane(Canvas& canvas, const Rectangle& area, const std::string& title, const std::vector<std::string>& notes,
                 const std::string& x_label, const std::string& y_label, const Range& x, const Range& y, bool log_x, bool log_y,
                 bool square) {
  Plane plane;
  const double bottom = 26 + (x_label.empty() ? 0 : 24);
  const double top = title_height + note_height * static_cast<double>(notes.size());
  double height = area.height - top - bottom;
  plane.y = make_axis(y, log_y, static_cast<int>(height / 55));
  const double left = std::max(tick_room, 12 + widest_label(canvas, plane.y)) + (y_label.empty() ? 0 : label_room);
  double width = area.width - left - 12;
  plane.inside = {area.x + left, area.y + top, width, height};
  if (square) {
    const double side = std::min(width, height);
    plane.inside = {area.x + left + (width - side) / 2, area.y + top, side, side};
    width = height = side;
    plane.y = make_axis(y, log_y, static_cast<int>(side / 55));
  }
  plane.x = make_axis(x, log_x, static_cast<int>(width / (square ? 55 : 75)));
  const auto& in = plane.inside;
  for (const auto& tick : plane.x.ticks)
    canvas.line(plane.left(tick.value), in.y, plane.left(tick.value), in.bottom(), tick.label.empty() ? fainter : faint);
  for (const auto& tick : plane.y.ticks)
    canvas.line(in.x, plane.top(tick.value), in.right(), plane.top(tick.value), tick.label.empty() ? fainter : faint);
  for (const auto& tick : plane.x.ticks)
    canvas.text(plane.left(tick.value), in.bottom() + 8, tick.label, {.size = tick_size, .horizontal = 0.5, .vertical = 0});
  for (const auto& tick : plane.y.ticks)
    canvas.text(in.x - 8, plane.top(tick.value), tick.label, {.size = tick_size, .horizontal = 1});
  canvas.frame(in, border);
  draw_title(canvas, {in.x, in.y - top, in.width, title_height}, title);
  double below = in.y - top + title_height - 3 + note_height / 2 - 4;
  for (const auto& note : notes) {
    canvas.text(in.x + in.width / 2, below, note, {.size = 13.5, .horizontal = 0.5});
    below += note_height;
  }
  if (!x_label.empty())
    canvas.text(in.x + in.width / 2, in.bottom() + 32, x_label, {.size = label_size, .horizontal = 0.5, .vertical = 0});
  if (!y_label.empty())
    canvas.text(in.x - left + 14, in.y + in.height / 2, y_label,
                {.size = label_size, .horizontal = 0.5, .vertical = 0.5, .upwards = true});
  return plane;
}

// In the corner where the legend hides the fewest points.
void draw_legend(Canvas& canvas, const Plane& plane, const std::vector<Series>& series, bool dots) {
  double width = 0;
  int lines = 0;
  for (const auto& s : series)
    if (!s.label.empty()) width = std::max(width, canvas.text_width(s.label, {.size = tick_size})), ++lines;
  if (lines == 0) return;
  const double w = width + 52, h = 22 * lines + 8;
  Rectangle best;
  std::size_t fewest = 0;
  for (int corner = 0; corner < 4; ++corner) {
    const auto& in = plane.inside;
    const Rectangle box{corner % 2 == 0 ? in.right() - w - 10 : in.x + 10, corner < 2 ? in.y + 10 : in.bottom() - h - 10, w, h};
    std::size_t hidden = 0;
    for (const auto& s : series)
      for (std::size_t i = 0; i < s.x.size(); ++i) {
        const double x = plane.left(s.x[i]), y = plane.top(s.y[i]);
        hidden += x > box.x && x < box.right() && y > box.y && y < box.bottom() ? 1 : 0;
      }
    if (corner == 0 || hidden < fewest) best = box, fewest = hidden;
  }
  canvas.fill(best, {1, 1, 1}, 0.85);
  canvas.frame(best, faint);
  double y = best.y + 15;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].label.empty()) continue;
    if (dots) canvas.dot(best.x + 22, y, 4, colour_of(series, i));
    else canvas.polyline({{best.x + 10, y}, {best.x + 34, y}}, colour_of(series, i), 2.5, series[i].dashed);
    canvas.text(best.x + 42, y, series[i].label, {.size = tick_size});
    y += 22;
  }
}

}  // namespace

double extra_width(const Lines&) { return 0; }
double extra_width(const Scatter& scatter) { return scatter.y_label.empty() ? 0 : label_room; }
double extra_width(const Image& image) { return image.bar ? bar_room : 0; }

void draw(Canvas& canvas, const Rectangle& area, const Lines& lines) {
  Range x, y;
  const auto shown = [&](const Series& s, std::size_t i) {
    return std::isfinite(s.y[i]) && (!lines.log_y || s.y[i] > 0) && (!lines.log_x || s.x[i] > 0);
  };
  for (const auto& s : lines.series)
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (shown(s, i)) x.include(s.x[i]), y.include(s.y[i]);
  const auto plane =
      draw_plane(canvas, area, lines.title, {}, lines.x_label, lines.y_label, x, y, lines.log_x, lines.log_y, false);
  canvas.clip(plane.inside);
  for (std::size_t k = 0; k < lines.series.size(); ++k) {
    const auto& s = lines.series[k];
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (shown(s, i)) points.emplace_back(plane.left(s.x[i]), plane.top(s.y[i]));
      else points.emplace_back(std::nan(""), std::nan(""));
    canvas.polyline(points, colour_of(lines.series, k), 2.2, s.dashed);
    if (!lines.markers && points.size() > 1) continue;
    for (const auto& [left, top] : points)
      if (std::isfinite(left) && std::isfinite(top)) {
        canvas.dot(left, top, 3.6, colour_of(lines.series, k));
        if (s.dashed) canvas.dot(left, top, 2, {1, 1, 1});
      }
  }
  canvas.unclip();
  draw_legend(canvas, plane, lines.series, false);
}

void draw(Canvas& canvas, const Rectangle& area, const Scatter& scatter) {
  Range x, y;
  for (const auto& s : scatter.series)
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (std::isfinite(s.x[i]) && std::isfinite(s.y[i])) x.include(s.x[i]), y.include(s.y[i]);
  if (scatter.identity) {
    for (const double value : {y.low, y.high}) x.include(value);
    y = x;
  }
  const auto plane = draw_plane(canvas, area, scatter.title, scatter.notes, scatter.x_label, scatter.y_label, x, y, false, false,
                                scatter.identity);
  canvas.clip(plane.inside);
  if (scatter.identity) {
    const auto& range = plane.x.range;
    canvas.polyline({{plane.left(range.low), plane.top(range.low)}, {plane.left(range.high), plane.top(range.high)}}, border, 1.5,
                    true);
  }
  for (std::size_t k = 0; k < scatter.series.size(); ++k) {
    const auto& s = scatter.series[k];
    const double radius = s.x.size() > 400 ? 2.2 : 3.4;
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (std::isfinite(s.x[i]) && std::isfinite(s.y[i]))
        canvas.dot(plane.left(s.x[i]), plane.top(s.y[i]), radius, colour_of(scatter.series, k), 0.65);
  }
  canvas.unclip();
  draw_legend(canvas, plane, scatter.series, true);
}

// Draws the edges of the mask's pixels; if dashed, every other edge.
void draw_outline(Canvas& canvas, const Rectangle& inside, const Image& image, const Outline& outline) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    const bool out = row < 0 || column < 0 || row >= image.rows || column >= image.columns;
    return !out && outline.mask[static_cast<std::size_t>(row * image.columns + column)];
  };
  const auto x = [&](std::int64_t column) {
    return inside.x + inside.width * static_cast<double>(column) / static_cast<double>(image.columns);
  };
  const auto y = [&](std::int64_t row) {
    return inside.y + inside.height * static_cast<double>(row) / static_cast<double>(image.rows);
  };
  for (std::int64_t row = 0; row <= image.rows; ++row)
    for (std::int64_t column = 0; column <= image.columns; ++column) {
      if (outline.dashed && (row + column) % 2 != 0) continue;
      const bool here = at(row, column);
      if (here != at(row - 1, column)) canvas.line(x(column), y(row), x(column + 1), y(row), outline.colour, 2);
      if (here != at(row, column - 1)) canvas.line(x(column), y(row), x(column), y(row + 1), outline.colour, 2);
    }
}

void draw(Canvas& canvas, const Rectangle& area, const Image& image) {
  Range range;
  for (const double value : image.values) range.include(value);
  if (range.empty()) range = {0, 1};
  range.low = image.low.value_or(range.low), range.high = image.high.value_or(range.high);
  const double scale = range.high > range.low ? 1 / (range.high - range.low) : 0;

  // A scale from one end of the colour map to the other, without the usual room of an axis.
  Axis axis = make_axis(range, false, 5);
  axis.range = range.high > range.low ? range : Range{range.low, range.low + 1};
  std::erase_if(axis.ticks, [&](const Tick& tick) { return tick.value < axis.range.low || tick.value > axis.range.high; });
  const double bar = image.bar ? bar_room : 0;
  const auto rows = static_cast<double>(image.rows), columns = static_cast<double>(image.columns);
  const double title = image.title.empty() ? 0 : title_height;
  const double cell = std::min((area.width - bar) / columns, (area.height - title) / rows);
  const double width = cell * columns, height = cell * rows;
  const Rectangle inside{std::round(area.x + (area.width - width - bar) / 2), std::round(area.y + title), std::round(width),
                         std::round(height)};
  auto pixels = image.pixels;
  pixels.reserve(pixels.size() + image.values.size());
  for (const double value : image.values) pixels.push_back(colour_map((value - range.low) * scale));
  canvas.image(inside, static_cast<int>(image.rows), static_cast<int>(image.columns), pixels);
  for (const auto& outline : image.outlines) draw_outline(canvas, inside, image, outline);
  if (image.frame) canvas.frame({inside.x - 2, inside.y - 2, inside.width + 4, inside.height + 4}, *image.frame, 4);
  if (!image.title.empty()) draw_title(canvas, {inside.x, inside.y - title_height, inside.width, title_height}, image.title);
  if (!image.bar) return;
  const Rectangle strip{inside.right() + 12, inside.y, 16, inside.height};
  std::vector<Colour> ramp;
  for (int i = 255; i >= 0; --i) ramp.push_back(colour_map(i / 255.0));
  canvas.image(strip, 256, 1, ramp);
  for (const auto& tick : axis.ticks) {
    const double y = strip.bottom() - axis.position(tick.value) * strip.height;
    canvas.line(strip.right(), y, strip.right() + 4, y, ink);
    canvas.text(strip.right() + 8, y, tick.label, {.size = tick_size});
  }
}

}  // namespace mpigrad::plot
