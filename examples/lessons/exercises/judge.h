#pragma once
// The judge of the exercises: it runs an exercise on 1, 2, 3, 4 and 5 ranks as threads of one process; the results of one process
// are right.

#include <mpigrad/mpigrad.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace judge {

using namespace mpigrad;

// Normally distributed random numbers; another `stream` on each rank makes them differ between ranks.
inline Tensor normal(const Shape& shape, std::uint64_t key, int stream = 0) {
  return random_normal(shape, {.key = key, .stream = static_cast<std::uint64_t>(stream)}, 0, 1, DType::float64);
}

// This rank's rows of x, which is whole on all ranks: as even as possible, but not all equal.
inline Tensor my_rows(const Tensor& x, const Communicator& comm) {
  const auto cuts = balanced_cuts(x.dim(0), comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  return slice(x, 0, cuts[r], cuts[r + 1]);
}

inline std::string numbers(const Tensor& x) {
  std::string text;
  for (const double value : x.to_vector()) {
    if (text.size() > 60) return text + ", ...";
    text += (text.empty() ? "" : ", ") + fmt::format("{:.4g}", value);
  }
  return "(" + text + ")";
}

// Throws an Error with both values unless they agree to `tolerance`.
inline void compare(const char* what, const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  const Untaped scope;
  require(found.shape() == expected.shape(), "[exercise] {} has the shape {}, one process finds {}", what, found.shape(),
          expected.shape());
  const double apart = largest_difference(found, expected);
  require(apart <= tolerance, "[exercise] {} is {} here, one process finds {}", what, numbers(found), numbers(expected));
}

// Throws an Error if a rank holds more tapes than `most`.
inline void at_most(std::size_t tapes, int most) {
  require(tapes <= static_cast<std::size_t>(most), "[exercise] a rank holds {} tapes, {} are enough", tapes, most);
}

// Returns 0 if the body throws on no rank.
inline int run(const char* title, const std::function<void(const Communicator&)>& body) {
  // Ends a program that hangs, with a report of what every rank was doing. A setting of the student has priority.
  setenv("MPIGRAD_CHECKS", "signatures,watchdog=5", 0);
  fmt::print("{}\n", title);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::string name = "exercise", transport = "--transport=threads", option = "--ranks=" + std::to_string(ranks);
    char* arguments[] = {name.data(), transport.data(), option.data(), nullptr};
    int count = 3;
    std::fflush(stdout);
    const int code = launch(count, arguments, [&](const std::shared_ptr<Transport>& world) {
      body(Communicator(world));
      return 0;
    });
    fmt::print("  {} rank{}: {}\n", ranks, ranks == 1 ? "" : "s", code == 0 ? "right" : "not yet");
    if (code != 0) return 1;
  }
  fmt::print("solved\n");
  return 0;
}

}  // namespace judge

// EXERCISE("title") { checks, with `comm` } is the last statement of a file. Tests put many of them into one program with a main
// of its own.
#ifdef EXERCISES_TOGETHER
#define EXERCISE(title)                                \
  static constexpr const char* exercise_title = title; \
  static void exercise_body([[maybe_unused]] const Communicator& comm)
#else
#define EXERCISE(title)                                   \
  static void exercise_body(const Communicator& comm);    \
  int main() { return judge::run(title, exercise_body); } \
  static void exercise_body([[maybe_unused]] const Communicator& comm)
#endif
