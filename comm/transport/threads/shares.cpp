#include "comm/transport/threads/shares.h"

#include <algorithm>
#include <array>
#include <utility>

#include "comm/transport/reduce_into.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad::threads {
namespace {

using transport_checks::offset;

std::byte* at(void* data, std::int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* at(const void* data, std::int64_t bytes) { return static_cast<const std::byte*>(data) + bytes; }

// Elements [first, last) of all ranks' inputs, reduced in rank order, into `write(piece, first, count)`. Each piece is complete
// before it is written, and nobody else reads these elements, so that out == in is allowed.
template <class Write>
void reduce_slice(Calls calls, std::int64_t first, std::int64_t last, Write write) noexcept {
  constexpr std::int64_t piece_bytes = 8192;
  alignas(64) std::array<std::byte, piece_bytes> piece;
  const Call& call = *calls[0];
  const std::int64_t size = size_of(call.type);
  for (std::int64_t i = first; i < last; i += piece_bytes / size) {
    const std::int64_t n = std::min(last - i, piece_bytes / size);
    copy(piece.data(), at(call.in, i * size), n * size);
    for (std::size_t r = 1; r < calls.size(); ++r) reduce_into(piece.data(), at(calls[r]->in, i * size), n, call.type, call.op);
    write(piece.data(), i, n);
  }
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// ---- one rank's share of every collective; see Call::share

// Of `count` elements; few are not worth dividing.
std::pair<std::int64_t, std::int64_t> slice(Calls calls, int rank) noexcept {
  const std::int64_t count = calls[0]->count, size = static_cast<std::int64_t>(calls.size());
  const std::int64_t step = std::max<std::int64_t>(1024, (count + size - 1) / size);
  return {std::min(count, step * rank), std::min(count, step * (rank + 1))};
}

}  // namespace

void nothing(Calls, int) noexcept {}

void broadcast_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  copy(mine.out, calls[index(mine.root)]->in, mine.count * size_of(mine.type));
}

void allreduce_share(Calls calls, int rank) noexcept {
  const std::int64_t size = size_of(calls[0]->type);
  const auto [first, last] = slice(calls, rank);
  reduce_slice(calls, first, last, [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
    for (const Call* call : calls) copy(at(call->out, i * size), piece, n * size);
  });
}

void reduce_share(Calls calls, int rank) noexcept {
  const std::int64_t size = size_of(calls[0]->type);
  void* out = calls[index(calls[0]->root)]->out;
  const auto [first, last] = slice(calls, rank);
  reduce_slice(calls, first, last,
               [&](const std::byte* piece, std::int64_t i, std::int64_t n) { copy(at(out, i * size), piece, n * size); });
}

void allgather_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  std::int64_t first = 0;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const auto bytes = mine.counts[r] * size_of(mine.type);
    copy(at(mine.out, first), calls[r]->in, bytes);
    first += bytes;
  }
}
void gather_share(Calls calls, int rank) noexcept {
  if (rank == calls[0]->root) allgather_share(calls, rank);
}

void scatter_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  copy(mine.out, at(calls[index(mine.root)]->in, offset(mine.counts, index(rank)) * size_of(mine.type)),
       mine.counts[index(rank)] * size_of(mine.type));
}

void reduce_scatter_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  const std::int64_t size = size_of(mine.type), first = offset(mine.counts, index(rank));
  reduce_slice(calls, first, first + mine.counts[index(rank)], [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
    copy(at(mine.out, (i - first) * size), piece, n * size);
  });
}

void alltoall_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  const std::int64_t size = size_of(mine.type);
  std::int64_t to = 0;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    copy(at(mine.out, to * size), at(calls[r]->in, offset(calls[r]->counts, index(rank)) * size), mine.receive_counts[r] * size);
    to += mine.receive_counts[r];
  }
}

}  // namespace mpigrad::threads
