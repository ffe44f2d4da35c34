#pragma once
// Axes of a plot: ranges, and ticks at round numbers.

#include <limits>
#include <string>
#include <vector>

namespace mpigrad::plot {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool whole = false;  // all values included are whole numbers
  bool empty() const { return low > high; }
  void include(double value);  // values that are not finite are ignored
};

struct Tick {
  double value = 0;
  std::string label;  // "" for a minor tick
};

struct Axis {
  Range range;
  bool log = false;
  std::vector<Tick> ticks;
  // 0 at range.low, 1 at range.high.
  double position(double value) const;
};

// Covers `data` with some room on both sides. Linear ticks are at multiples of 1, 2 or 5 times a power of ten, about `wanted` of
// them, only at whole numbers if all values are whole. Logarithmic ticks are at powers of ten, and at other round numbers if
// there would be few. An empty range becomes 0 ... 1, or 1 ... 10 if logarithmic; `data` of a logarithmic axis are positive.
Axis make_axis(const Range& data, bool log, int wanted);

}  // namespace mpigrad::plot
