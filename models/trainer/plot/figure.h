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
  std::vector<double> x{}, y{};    // as many of each; what is not finite is left out
  std::optional<Colour> colour{};  // none: by its place among the series
  bool dashed = false;             // of curves, whose markers are hollow then
};

// Curves, with a legend if they have labels.
struct Lines {
  std::string title{}, x_label{}, y_label{};
  bool log_x = false, log_y = false;  // leave out what is not positive
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
  std::vector<Colour> pixels{};         // in place of values: [rows, columns] as they are to look
  std::optional<double> low{}, high{};  // what the ends of the colour map mean; else the smallest and largest value
  bool bar = false;                     // with a scale beside it
  std::optional<Colour> frame{};        // around it
  std::vector<Outline> outlines{};      // on it
};

using Panel = std::variant<Lines, Scatter, Image>;

// Whether the library was built with cairo.
bool available();

class Figure {
 public:
  explicit Figure(std::string title = "", int width = 1200);
  // Panels side by side, of equal size. Errors: a series whose x and y differ in number, an image without its values.
  void row(int height, std::vector<Panel> panels);
  // Writes nothing unless available(). Errors: the file exists and is not to be overwritten, cannot be written.
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
