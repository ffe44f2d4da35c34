// The figure library: ticks, colours, files.

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "framework/base/error.h"
#include "models/trainer/plot/axis.h"
#include "models/trainer/plot/colour.h"
#include "models/trainer/plot/figure.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> labels(double low, double high, bool log, int wanted) {
  std::vector<std::string> result;
  for (const auto& tick : plot::make_axis({low, high}, log, wanted).ticks)
    if (!tick.label.empty()) result.push_back(tick.label);
  return result;
}

}  // namespace

TEST_CASE("plot: ticks at round numbers") {
  using Labels = std::vector<std::string>;
  CHECK(labels(0, 1, false, 5) == Labels{"0", "0.2", "0.4", "0.6", "0.8", "1.0"});
  CHECK(labels(-30, 70, false, 4) == Labels{"-20", "0", "20", "40", "60"});
  CHECK(labels(0.00012, 0.00019, false, 4) == Labels{"0.00012", "0.00014", "0.00016", "0.00018"});
  CHECK(labels(1e-4, 2, true, 4) == Labels{"0.0001", "0.001", "0.01", "0.1", "1"});
  CHECK(labels(0.3, 0.9, true, 4).size() >= 3);
  for (const bool log : {false, true})
    for (double low = 1e-9; low < 1e9; low *= 7.3)
      for (double span = 1e-3 * low; span < 1e6 * low; span *= 11) {
        const auto axis = plot::make_axis({low, low + span}, log, 5);
        const auto n = labels(low, low + span, log, 5).size();
        CHECK((n >= 2 && n <= 12));
        for (const auto& tick : axis.ticks) CHECK((axis.position(tick.value) > -1e-6 && axis.position(tick.value) < 1 + 1e-6));
      }
  CHECK(plot::make_axis({}, false, 5).ticks.size() >= 3);
  CHECK(plot::make_axis({3, 3}, false, 5).ticks.size() >= 3);
  CHECK(plot::make_axis({0, 0}, false, 5).ticks.size() >= 3);
}

TEST_CASE("plot: the colour map grows in lightness, in range and without steps") {
  double last = -1;
  for (int i = 0; i <= 256; ++i) {
    const auto c = plot::colour_map(i / 256.0);
    const auto linear = [](double v) { return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); };
    const double luminance = 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
    CHECK(luminance > last);
    CHECK(luminance - last < (i == 0 ? 2 : 0.02));
    for (const double v : {c.red, c.green, c.blue}) CHECK((v >= 0 && v <= 1));
    last = luminance;
  }
  CHECK(last > 0.8);
}

TEST_CASE("plot: PNG files") {
  const auto path = fs::temp_directory_path() / fmt::format("mpigrad_plot_test_{}.png", getpid());
  fs::remove(path);
  const double nan = std::nan("");
  plot::Figure figure("test", 600);
  figure.row(200, {plot::Lines{.title = "with gaps", .log_y = true, .series = {{"a", {0, 1, 2, 3}, {1, nan, -1, 10}}}},
                   plot::Lines{.log_x = true, .series = {{"", {0, 1, 1000}, {1, 2, 3}}}},
                   plot::Lines{.series = {{"all not numbers", {0, 1}, {nan, nan}}}}});
  figure.row(200, {plot::Scatter{.series = {{"", {1, 2, nan}, {1, 2, 3}}}, .notes = {"note"}}, plot::Scatter{},
                   plot::Image{.rows = 2, .columns = 3, .values = {0, 1, 2, 3, nan, 5}, .bar = true},
                   plot::Image{.title = "constant", .rows = 1, .columns = 1, .values = {4}, .bar = true}});
  figure.save(path);
  std::string head(8, ' ');
  std::ifstream(path).read(head.data(), 8);
  CHECK(head == "\x89PNG\r\n\x1a\n");
  CHECK(has(error_text([&] { figure.save(path); }), "exists already"));
  figure.save(path, true);
  fs::remove(path);
  CHECK(has(error_text([&] { figure.save(path / "below" / "a.png"); }), "cannot be written"));
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path()))
    CHECK_FALSE(has(entry.path().filename().string(), fmt::format(".mpigrad_plot_test_{}", getpid())));
  CHECK(has(error_text([&] { figure.row(100, {plot::Lines{.series = {{"s", {1, 2}, {1}}}}}); }), "series 's' has 2 x and 1 y"));
  CHECK(has(error_text([&] { figure.row(100, {plot::Image{.rows = 2, .columns = 2}}); }), "2 x 2 with 0 values"));
}
