#include "models/trainer/plot/figure.h"

#include "framework/base/error.h"

namespace mpigrad::plot {

namespace {

void check(const std::vector<Series>& series) {
  for (const auto& s : series)
    require(s.x.size() == s.y.size(), "[plot] series '{}' has {} x and {} y", s.label, s.x.size(), s.y.size());
}
void check(const Lines& lines) { check(lines.series); }
void check(const Scatter& scatter) { check(scatter.series); }
void check(const Image& image) {
  require(image.rows > 0 && image.columns > 0 &&
              static_cast<std::int64_t>(image.values.size() + image.pixels.size()) == image.rows * image.columns,
          "[plot] image '{}' is {} x {} with {} values", image.title, image.rows, image.columns, image.values.size());
}

}  // namespace

Figure::Figure(std::string title, int width) : title_(std::move(title)), width_(width) {}

void Figure::row(int height, std::vector<Panel> panels) {
  require(!panels.empty() && height > 0, "[plot] a row of {} panels of height {}", panels.size(), height);
  for (const auto& panel : panels) std::visit([](const auto& p) { check(p); }, panel);
  rows_.push_back({height, std::move(panels)});
}

}  // namespace mpigrad::plot
