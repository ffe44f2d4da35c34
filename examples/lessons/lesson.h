#pragma once
// Helpers of the lessons: start, output in the order of ranks, and checked claims. No mathematics.

#include <mpigrad/mpigrad.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lesson {

using namespace mpigrad;

// Prints once, from rank 0.
template <class... Arguments>
void say(const Session& session, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (session.rank() == 0) fmt::print("{}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Prints one text per rank, in the order of the ranks. Collective.
inline void say_in_turn(const Session& session, const std::string& text) {
  const Untaped scope;
  const std::vector<double> letters(text.begin(), text.end());
  const Tensor mine = from_vector({static_cast<std::int64_t>(letters.size())}, letters, DType::uint8);
  std::string all;
  for (const double letter : gather(mine, session.world()).to_vector()) all += static_cast<char>(letter);
  if (session.rank() == 0) fmt::print("{}", all);
}

// States a fact that every rank has checked; if it does not hold on some rank, the program ends with an error. Collective.
template <class... Arguments>
void claim(const Session& session, bool holds, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const Untaped scope;
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  const double failures = total(full({}, holds ? 0 : 1, DType::float64), session.world());
  require(failures == 0, "[lesson] this does not hold on {} of {} ranks: {}", failures, session.ranks(), text);
  say(session, "holds: {}", text);
}

// max |a - b|
inline double distance(const Tensor& a, const Tensor& b) {
  const Untaped scope;
  return a.elements() == 0 ? 0 : max(abs(a - b)).item();
}
// |x|, of this rank's elements
inline double norm(const Tensor& x) {
  const Untaped scope;
  return std::sqrt(dot(x, x).item());
}

// This rank's rows of x, which is whole on all ranks.
inline Tensor my_rows(const Tensor& x, const Communicator& comm) {
  const auto cuts = balanced_cuts(x.dim(0), comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  return slice(x, 0, cuts[r], cuts[r + 1]);
}

// Names of tape entries on one line; on request only of those that communicate.
inline std::string names(std::span<const Tape::Entry> entries, bool communication_only = false) {
  std::string line;
  for (const auto& entry : entries)
    if (entry.communicates || !communication_only) line += (line.empty() ? "" : " ") + std::string(entry.name);
  return line;
}

// Runs body(session) on `ranks` threads of this process, unless --ranks, --transport or a launcher says otherwise.
template <class Body>
int run_lesson(int argc, char** argv, int ranks, Body body) {
  std::vector<char*> given(argv, argv + argc + 1), arguments = given;
  std::string number = std::to_string(ranks), option = "--ranks", unknown;
  try {
    const auto options = take_launch_options(argc, given.data());
    if (argc > 1) unknown = given[1];
    const bool by_hand = resolve_launch_options({.transport = "", .ranks = ranks}).transport == "threads";
    if (by_hand && options.ranks == 0 && options.transport != "mpi")
      arguments.insert(arguments.begin() + 1, {option.data(), number.data()});
  } catch (const Error&) {
    // `run` throws the same error again and prints it.
  }
  return run(static_cast<int>(arguments.size()) - 1, arguments.data(), [&](Session& session) {
    const std::string name = std::string_view(argv[0]).substr(std::string_view(argv[0]).rfind('/') + 1).data();
    const bool help = unknown == "--help" || unknown == "-h";
    if (help) say(session, "Usage: {} [--ranks P] [--transport threads|mpi]\nThe text of the lesson heads its source.", name);
    if (unknown.empty()) body(session);
    else if (!help && session.rank() == 0)
      fmt::print(stderr, "{}: there is only --ranks and --transport, not '{}'\n", name, unknown);
    return unknown.empty() || help ? 0 : 2;
  });
}

}  // namespace lesson
