#pragma once
// One rank's share of every collective: work in the memory of all ranks, which all shares together complete. See Call::share.

#include <cstring>

#include "comm/transport/threads/group.h"

namespace mpigrad::threads {

using Calls = std::span<const Call* const>;

// A part of a buffer may already lie where it belongs.
inline void copy(void* to, const void* from, std::int64_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void nothing(Calls calls, int rank) noexcept;
void broadcast_share(Calls calls, int rank) noexcept;
void allreduce_share(Calls calls, int rank) noexcept;
void reduce_share(Calls calls, int rank) noexcept;
void allgather_share(Calls calls, int rank) noexcept;
void gather_share(Calls calls, int rank) noexcept;
void scatter_share(Calls calls, int rank) noexcept;
void reduce_scatter_share(Calls calls, int rank) noexcept;
void alltoall_share(Calls calls, int rank) noexcept;

}  // namespace mpigrad::threads
