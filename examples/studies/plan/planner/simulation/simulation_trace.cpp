#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "examples/studies/plan/planner/simulation/simulate.h"

namespace mpigrad::planner {

std::string perfetto(const Simulation& simulation) {
  constexpr std::array lanes{"steps", "compute", "communication", "data", "overlapped communication"};
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const auto event = [&](const std::string& line) {
    if (text.back() != '[' && text.back() != '\n') text += ",\n";
    text += line;
  };
  std::set<int> ranks;
  const bool overlaps =
      std::any_of(simulation.spans.begin(), simulation.spans.end(), [&](const auto& span) { return span.lane == 4; });
  for (const auto& span : simulation.spans) ranks.insert(span.rank);
  for (const int rank : ranks) {
    event(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})", rank, rank));
    // Traces of measurements have no lane for communication that overlaps with work.
    for (std::size_t lane = 0; lane < lanes.size() - (overlaps ? 0 : 1); ++lane)
      event(
          fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank, lane, lanes[lane]));
  }
  // Names of ops and layers have no quotes, backslashes or control characters. Both ends of spans are rounded to whole
  // nanoseconds, so that consecutive spans stay consecutive.
  const auto nanoseconds = [](double seconds) { return std::round(1e9 * seconds); };
  for (const auto& span : simulation.spans) {
    const double start = nanoseconds(span.start), end = nanoseconds(span.start + span.seconds);
    event(fmt::format(R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})", span.name, span.rank, span.lane,
                      1e-3 * start, 1e-3 * (end - start)));
  }
  return text + "\n]}\n";
}

}  // namespace mpigrad::planner
