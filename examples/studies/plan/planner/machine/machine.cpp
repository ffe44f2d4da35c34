#include "examples/studies/plan/planner/machine/machine.h"

#include <algorithm>

#include "framework/base/error.h"

namespace mpigrad::planner {

double MeasuredCall::seconds(double bytes) const {
  require(points.size() >= 2, "[planner] {} of {} ranks was measured for {} sizes of 2 that it takes", call, ranks,
          points.size());
  // Messages below the smallest measured size take as long as that: latency.
  if (bytes <= points.front().first) return points.front().second;
  const auto above = std::find_if(points.begin() + 1, points.end() - 1, [&](const auto& point) { return bytes <= point.first; });
  const auto& [low, from] = *(above - 1);
  const auto& [high, to] = *above;
  const double line = from + (to - from) * (bytes - low) / (high - low);
  // Noise may make the last line fall: beyond it no time is below the measured ones.
  return bytes > high ? std::max(line, to) : line;
}

int Machine::level_between(int a, int b) const {
  require(!levels.empty(), "[planner] machine {} has no level", name);
  require(std::min(a, b) >= 0 && std::max(a, b) < ranks(), "[planner] machine {} has ranks 0 to {}: no level joins {} and {}",
          name, ranks() - 1, a, b);
  // Ranks of a unit are consecutive, so that a rank's unit is its number over the unit's size. The last level is one unit.
  const auto joins = [&](const Level& level) { return a / level.ranks == b / level.ranks; };
  return static_cast<int>(std::find_if(levels.begin(), levels.end() - 1, joins) - levels.begin());
}

}  // namespace mpigrad::planner
