#pragma once
// The input of the adjoint calculator: an operation, its arguments and every rank's x and ybar. All ranks read the same command
// line, so each knows the whole problem, and all refuse invalid arguments in the same way before anything is sent.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/collectives/reductions.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::adjoint {

constexpr int most_ranks = 256;            // threads
constexpr std::int64_t most_width = 1000;  // a periodic halo takes one exchange for each time that it wraps around

using Fields = std::vector<std::vector<double>>;  // one per rank
using Sizes = std::vector<std::int64_t>;          // one per rank

// The arguments as typed; without a value: not given.
struct Options {
  std::string op;
  std::string reduce = "sum", ties = "split";
  std::int64_t root = 0, width = 1, by = 1;
  bool periodic = false, json = false;
  std::optional<std::string> x, ybar, counts, dest, source, graph, target, second;
};

struct Operation;

struct Problem {
  const Operation* operation = nullptr;
  int ranks = 1;
  ReduceOp reduce = ReduceOp::sum;
  Ties ties = Ties::split;
  int root = 0, by = 1;
  std::int64_t width = 1;
  bool periodic = false;
  Fields x, ybar;
  std::optional<std::string> counts;      // as typed; the operation interprets them
  std::vector<int> dest, source, target;  // one per rank
  std::vector<std::vector<int>> graph;    // destinations of each rank
  std::optional<std::pair<int, int>> second;

  // Filled in by the operation.
  Sizes y_sizes;
  Rows rows;                 // every rank's block
  std::vector<Rows> matrix;  // [r][s]: elements that r sends to rank s (neighbourhoods: to its s-th destination)

  std::size_t size() const { return static_cast<std::size_t>(ranks); }
  std::int64_t x_size(std::size_t r) const { return static_cast<std::int64_t>(x[r].size()); }
  bool linear() const { return reduce == ReduceOp::sum || reduce == ReduceOp::avg; }
};

// UsageError for invalid arguments, with the option's name.
Problem make_problem(const Options& options, int ranks);

// "1,0,2" (or "1;0;2"), and "1,2;0;" as one list per rank. `what` names the option in errors.
std::vector<std::int64_t> parse_list(const std::string& what, const std::string& text, std::int64_t low);
std::vector<std::vector<std::int64_t>> parse_lists(const std::string& what, const std::string& text, std::int64_t low);

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw tool::UsageError(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace mpigrad::adjoint
