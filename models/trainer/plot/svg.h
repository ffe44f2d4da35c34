#pragma once
// Small drawings as SVG text, for drawings that a browser must also make, where there is no cairo.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace mpigrad::tool {

class Svg {
 public:
  void rectangle(double x, double y, double width, double height, const std::string& fill, const std::string& rest = "") {
    grow(x + width, y + height);
    body_ += fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\" {}/>\n", x, y, width, height,
                         fill, rest);
  }
  // `anchor` is start, middle or end; y is the baseline.
  void text(double x, double y, const std::string& words, const char* anchor = "middle", double size = 12,
            const std::string& rest = "") {
    const double width = 0.62 * size * static_cast<double>(words.size());
    grow(anchor[0] == 's' ? x + width : anchor[0] == 'm' ? x + width / 2 : x, y + 4);
    body_ += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\" font-size=\"{:g}\" {}>{}</text>\n", x, y, anchor, size,
                         rest, escaped(words));
  }
  // From one point to another, slightly curved, with a head.
  void arrow(double x0, double y0, double x1, double y1, const std::string& colour) {
    grow(std::max(x0, x1), std::max(y0, y1));
    const double middle = (y0 + y1) / 2;
    body_ += fmt::format(
        "<path d=\"M{:g} {:g} C{:g} {:g} {:g} {:g} {:g} {:g}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" "
        "marker-end=\"url(#head)\"/>\n",
        x0, y0, x0, middle, x1, middle, x1, y1, colour);
  }
  // Screen readers read the title.
  std::string str(const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" role=\"img\" "
        "font-family=\"sans-serif\"><title>{2}</title>\n<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
        "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#555\"/></marker>"
        "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{3}</svg>\n",
        width_ + 10, height_ + 10, escaped(title), body_);
  }
  // A colour for each rank; far apart for neighbours.
  static std::string colour_of(int rank, int lightness = 62) {
    return fmt::format("hsl({:.0f},62%,{}%)", std::fmod(210 + 137.508 * rank, 360.0), lightness);
  }

 private:
  static std::string escaped(const std::string& words) {
    std::string result;
    for (const char c : words) result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return result;
  }
  void grow(double x, double y) { width_ = std::max(width_, x), height_ = std::max(height_, y); }

  std::string body_;
  double width_ = 0, height_ = 0;
};

}  // namespace mpigrad::tool
