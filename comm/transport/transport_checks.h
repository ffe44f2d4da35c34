#pragma once
// Checks of the arguments of transport calls, the same in every transport. Used inside comm only.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/transport/count_checks.h"
#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad::transport_checks {

inline void check_tag(int tag, int max_tag) {
  require(tag >= 0 && tag <= max_tag, "[exchange] tags are 0 to {}, got {}", max_tag, tag);
}

inline void check_messages(std::span<const Message> messages, int size, int max_tag) {
  for (const auto& message : messages) {
    check_rank("exchange", "peer", message.peer, size);
    check_count("exchange", message.count);
    check_tag(message.tag, max_tag);
  }
}

inline void check_receive(const Message& message, int size, int max_tag) {
  if (message.peer != any_source) check_rank("receive", "source", message.peer, size);
  if (message.tag != any_tag) check_tag(message.tag, max_tag);
  check_count("receive", message.count);
}

// The caller's place in the list of a subgroup's ranks.
inline int check_subgroup(std::span<const int> ranks, int rank, int size) {
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (int member : ranks) {
    check_rank("subgroup", "member", member, size);
    require(!seen[static_cast<std::size_t>(member)], "[subgroup] rank {} is listed twice", member);
    seen[static_cast<std::size_t>(member)] = true;
  }
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  require(place != ranks.end(), "[subgroup] the caller, rank {}, is not in the list of {} ranks", rank, ranks.size());
  return static_cast<int>(place - ranks.begin());
}

// The ranks of split() that have that color, ordered by key and rank, from every rank's (color, key).
inline std::vector<int> ranks_of_color(std::span<const std::array<int, 2>> all, int color) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r][0] == color) ranks.push_back(static_cast<int>(r));
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return all[static_cast<std::size_t>(a)][1] < all[static_cast<std::size_t>(b)][1]; });
  return ranks;
}

}  // namespace mpigrad::transport_checks
