#pragma once
// Pictures of results: panels in rows, saved as PNG.
//
//   plot::Figure figure("CosmoFlow");
//   figure.row(340, {plot::Lines{.title = "loss", .x_label = "epoch", .log_y = true, .series = {{"training", epochs, losses}}}});
//   figure.save("result.png", overwrite);

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/trainer/plot/colour.h"

namespace mpigrad::plot {

struct Series {
  std::string label{};
  std::vector<double> x{}, y{};    // of equal length; points that are not finite are left out
  std::optional<Colour> colour{};  // none: chosen by its place among the series
  bool dashed = false;             // for curves; markers are hollow then
};

// Curves, with a legend if they have labels.
struct Lines {
  std::string title{}, x_label{}, y_label{};
  bool log_x = false, log_y = false;  // values that are not positive are left out
  bool markers = false;
  std::vector<Series> series{};
};

// Points, with the same range on both axes and the line y = x if `identity`.
struct Scatter {
  std::string title{}, x_label{}, y_label{};
  bool identity = true;
  std::vector<Series> series{};
  std::vector<std::string> notes{};  // lines of text below the title
};

// The border of some pixels of an image.
struct Outline {
  Colour colour{};
  bool dashed = false;
  std::vector<bool> mask{};  // [rows, columns]
};

// One slice in colours; pixels are square.
struct Image {
  std::string title{};
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values{};         // [rows, columns], row 0 on top
  std::vector<Colour> pixels{};         // in place of values: [rows, columns], the colours themselves
  std::optional<double> low{}, high{};  // values at the ends of the colour map; none: the smallest and largest
  bool bar = false;                     // with a colour scale at its side
  std::optional<Colour> frame{};        // around it
  std::vector<Outline> outlines{};      // on it
};

using Panel = std::variant<Lines, Scatter, Image>;

// True if the library was built with cairo.
bool available();

class Figure {
 public:
  explicit Figure(std::string title = "", int width = 1200);
  // Panels side by side, of equal size. Errors: a series whose x and y differ in number, an image without its values.
  void row(int height, std::vector<Panel> panels);
  // Does nothing unless available(). Errors: the file exists and `overwrite` is false; the file cannot be written.
  void save(const std::filesystem::path& path, bool overwrite = false) const;

 private:
  struct Row {
    int height;
    std::vector<Panel> panels;
  };
  std::string title_;
  int width_;
  std::vector<Row> rows_;
};

}  // namespace mpigrad::plot
