#pragma once
// Checks of counts and ranks in calls, the same in every transport. Used inside comm only.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>

#include "framework/base/error.h"

namespace mpigrad::transport_checks {

// A rank, or a number of ranks, as an index of containers.
inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

inline void check_count(std::string_view call, std::int64_t count) {
  require(count >= 0, "[{}] counts are not negative, got {}", call, count);
}

inline void check_counts(std::string_view call, std::span<const std::int64_t> counts, int size) {
  require(counts.size() == static_cast<std::size_t>(size), "[{}] one count per rank: {} counts for {} ranks", call, counts.size(),
          size);
  for (auto count : counts) check_count(call, count);
}

inline void check_rank(std::string_view call, std::string_view what, int rank, int size) {
  require(rank >= 0 && rank < size, "[{}] {} {} is not a rank of this communicator of {}", call, what, rank, size);
}

// Elements before rank r's part; offset(counts, counts.size()) is the total.
inline std::int64_t offset(std::span<const std::int64_t> counts, std::size_t r) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(r), std::int64_t{0});
}
inline std::int64_t total(std::span<const std::int64_t> counts) { return offset(counts, counts.size()); }

}  // namespace mpigrad::transport_checks
