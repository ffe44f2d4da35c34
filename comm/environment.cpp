#include "comm/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

namespace mpigrad {
namespace {

constexpr std::array<std::string_view, 8> known{"MPIGRAD_TRANSPORT",      "MPIGRAD_RANKS",     "MPIGRAD_DEVICE",
                                                "MPIGRAD_THREADS",        "MPIGRAD_CHECKS",    "MPIGRAD_REDUCTIONS",
                                                "MPIGRAD_CUDA_AWARE_MPI", "MPIGRAD_GPU_POISON"};

// Letters to put in, to leave out or to change until one word is the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    auto diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({diagonal + (letter != b[j] ? 1 : 0), row[j + 1] + 1, row[j] + 1}));
  }
  return row.back();
}

}  // namespace

std::vector<std::string> mistyped_variables() {
  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry, name = text.substr(0, text.find('='));
    if (!name.starts_with("MPIGRAD_") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto meant = std::find_if(known.begin(), known.end(), [&](auto each) { return distance(name, each) <= 2; });
    if (meant != known.end())
      warnings.push_back(fmt::format("warning: [launch] nothing reads the variable {}; {} is read", name, *meant));
  }
  return warnings;
}

}  // namespace mpigrad
