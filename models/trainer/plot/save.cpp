#include "framework/base/new_file.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/plot/panels.h"

namespace mpigrad::plot {

namespace {

constexpr int margin = 20, gap = 22, heading_height = 44;

}  // namespace

bool available() { return true; }

void Figure::save(const std::filesystem::path& path, bool overwrite) const {
  require(overwrite || !is_name_taken(path), "[plot] {}: exists already and is not overwritten unasked", path.string());
  int height = margin + (title_.empty() ? 0 : heading_height);
  for (const auto& row : rows_) height += row.height + gap;
  Canvas canvas(width_, height + margin - gap);
  double y = margin;
  if (!title_.empty()) {
    canvas.text(width_ / 2.0, y + 10, title_, {.size = 22, .bold = true, .horizontal = 0.5});
    y += heading_height;
  }
  for (const auto& row : rows_) {
    const auto count = static_cast<double>(row.panels.size());
    double extra = 0;
    for (const auto& panel : row.panels) extra += std::visit([](const auto& p) { return extra_width(p); }, panel);
    const double width = (width_ - 2 * margin - gap * (count - 1) - extra) / count;
    double x = margin;
    for (const auto& panel : row.panels) {
      const double all = width + std::visit([](const auto& p) { return extra_width(p); }, panel);
      const Rectangle area{x, y, all, static_cast<double>(row.height)};
      std::visit([&](const auto& p) { draw(canvas, area, p); }, panel);
      x += all + gap;
    }
    y += row.height + gap;
  }
  canvas.save(path);
}

}  // namespace mpigrad::plot
