#include "models/trainer/plot/canvas.h"

#include <cmath>
#include <cstdint>
#include <exception>
#include <numbers>
#include <span>

#include "framework/base/error.h"
#include "framework/base/new_file.h"

namespace mpigrad::plot {

namespace {

void check(cairo_status_t status, const std::string& what) {
  require(status == CAIRO_STATUS_SUCCESS, "[plot] {}: {}", what, cairo_status_to_string(status));
}

}  // namespace

Canvas::Canvas(int width, int height)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height)), context_(cairo_create(surface_.get())) {
  check(cairo_status(context_.get()), fmt::format("a picture of {} x {} pixels", width, height));
  cairo_set_line_join(context_.get(), CAIRO_LINE_JOIN_ROUND);
  set(Colour{1, 1, 1});
  cairo_paint(context_.get());
}

void Canvas::set(const Colour& colour, double alpha) {
  cairo_set_source_rgba(context_.get(), colour.red, colour.green, colour.blue, alpha);
}

void Canvas::set(const TextStyle& style) {
  cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context_.get(), style.size);
  set(style.colour);
}

void Canvas::fill(const Rectangle& area, const Colour& colour, double alpha) {
  set(colour, alpha);
  cairo_rectangle(context_.get(), area.x, area.y, area.width, area.height);
  cairo_fill(context_.get());
}

void Canvas::frame(const Rectangle& area, const Colour& colour, double line) {
  set(colour);
  cairo_set_line_width(context_.get(), line);
  cairo_rectangle(context_.get(), std::round(area.x) + 0.5, std::round(area.y) + 0.5, std::round(area.width),
                  std::round(area.height));
  cairo_stroke(context_.get());
}

void Canvas::polyline(const std::vector<std::pair<double, double>>& points, const Colour& colour, double line, bool dashed) {
  const double pattern[] = {7, 5};
  set(colour);
  cairo_set_line_width(context_.get(), line);
  cairo_set_dash(context_.get(), pattern, dashed ? 2 : 0, 0);
  bool drawing = false;
  for (const auto& [x, y] : points) {
    const bool finite = std::isfinite(x) && std::isfinite(y);
    if (finite && drawing) cairo_line_to(context_.get(), x, y);
    else if (finite) cairo_move_to(context_.get(), x, y);
    drawing = finite;
  }
  cairo_stroke(context_.get());
  cairo_set_dash(context_.get(), pattern, 0, 0);
}

void Canvas::line(double x0, double y0, double x1, double y1, const Colour& colour, double width) {
  // Lines go through the middle of pixels, so that a line of one pixel is not spread over two.
  const auto middle = [](double value) { return std::round(value) + 0.5; };
  set(colour);
  cairo_set_line_width(context_.get(), width);
  cairo_move_to(context_.get(), middle(x0), middle(y0));
  cairo_line_to(context_.get(), middle(x1), middle(y1));
  cairo_stroke(context_.get());
}

void Canvas::dot(double x, double y, double radius, const Colour& colour, double alpha) {
  set(colour, alpha);
  cairo_arc(context_.get(), x, y, radius, 0, 2 * std::numbers::pi);
  cairo_fill(context_.get());
}

double Canvas::text_width(const std::string& text, const TextStyle& style) {
  set(style);
  cairo_text_extents_t extents;
  cairo_text_extents(context_.get(), text.c_str(), &extents);
  return extents.x_advance;
}

void Canvas::text(double x, double y, const std::string& text, const TextStyle& style) {
  const double width = text_width(text, style);
  cairo_save(context_.get());
  cairo_translate(context_.get(), x, y);
  if (style.upwards) cairo_rotate(context_.get(), -std::numbers::pi / 2);
  // Capitals are about 0.73 of the size high; centring on that height aligns digits with their ticks.
  cairo_move_to(context_.get(), -style.horizontal * width, (1 - style.vertical) * 0.73 * style.size);
  cairo_show_text(context_.get(), text.c_str());
  cairo_restore(context_.get());
}

void Canvas::image(const Rectangle& area, int rows, int columns, const std::vector<Colour>& pixels) {
  const std::unique_ptr<cairo_surface_t, Destroy> picture(cairo_image_surface_create(CAIRO_FORMAT_RGB24, columns, rows));
  check(cairo_surface_status(picture.get()), fmt::format("an image of {} x {}", columns, rows));
  cairo_surface_flush(picture.get());
  auto* bytes = cairo_image_surface_get_data(picture.get());
  const auto stride = cairo_image_surface_get_stride(picture.get());
  const auto byte = [](double value) { return static_cast<std::uint32_t>(std::lround(255 * value)); };
  for (int r = 0; r < rows; ++r) {
    auto* row = reinterpret_cast<std::uint32_t*>(bytes + static_cast<std::ptrdiff_t>(r) * stride);
    for (int c = 0; c < columns; ++c) {
      const auto& p = pixels[static_cast<std::size_t>(r) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)];
      row[c] = byte(p.red) << 16 | byte(p.green) << 8 | byte(p.blue);
    }
  }
  cairo_surface_mark_dirty(picture.get());
  cairo_save(context_.get());
  cairo_rectangle(context_.get(), area.x, area.y, area.width, area.height);
  cairo_clip(context_.get());
  cairo_translate(context_.get(), area.x, area.y);
  cairo_scale(context_.get(), area.width / columns, area.height / rows);
  cairo_set_source_surface(context_.get(), picture.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(context_.get()), columns > area.width ? CAIRO_FILTER_GOOD : CAIRO_FILTER_NEAREST);
  cairo_paint(context_.get());
  cairo_restore(context_.get());
}

void Canvas::clip(const Rectangle& area) {
  cairo_save(context_.get());
  cairo_rectangle(context_.get(), area.x, area.y, area.width, area.height);
  cairo_clip(context_.get());
}

void Canvas::unclip() { cairo_restore(context_.get()); }

void Canvas::save(const std::filesystem::path& path) {
  check(cairo_status(context_.get()), path.string());
  // An exception must not pass through cairo's C functions.
  struct Writing {
    NewFile file;
    std::exception_ptr problem{};
  } writing{.file{path, "plot"}};
  const auto write = [](void* to, const unsigned char* data, unsigned int size) {
    auto& [file, problem] = *static_cast<Writing*>(to);
    try {
      file.write(std::as_bytes(std::span(data, size)));
      return CAIRO_STATUS_SUCCESS;
    } catch (...) {
      problem = std::current_exception();
      return CAIRO_STATUS_WRITE_ERROR;
    }
  };
  const auto status = cairo_surface_write_to_png_stream(surface_.get(), write, &writing);
  if (writing.problem) std::rethrow_exception(writing.problem);
  check(status, path.string() + ": cannot be written");
  writing.file.commit();
}

}  // namespace mpigrad::plot
