#include "comm/transport/threads/group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/transport/reduce_into.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad::threads {
namespace {

using transport_checks::index;
using Calls = std::span<const Call* const>;

// Copies bytes, unless a part of a buffer already lies at its destination.
void copy(void* to, const void* from, std::int64_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::byte* at(void* data, std::int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* at(const void* data, std::int64_t bytes) { return static_cast<const std::byte*>(data) + bytes; }

// Reduces elements [first, last) of all ranks' inputs in rank order, and calls `write(piece, first, count)` for each piece. Each
// piece is complete before it is written, and no other rank reads these elements, so that out == in is allowed.
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

// The slice of `count` elements that a rank adds up; few elements are not worth dividing.
BufferSlice slice_of(std::int64_t count, int ranks, int rank) noexcept {
  const std::int64_t step = std::max<std::int64_t>(1024, (count + ranks - 1) / ranks);
  const auto first = std::min(count, step * rank);
  return {first, std::min(count, first + step) - first};
}

// Sums that several ranks need: each rank adds up a slice, for all of them.
void reduce_for_all(Calls calls, int rank) noexcept {
  const Call& call = *calls[0];
  const auto size = size_of(call.type);
  const auto slice = slice_of(call.count, static_cast<int>(calls.size()), rank);
  reduce_slice(calls, slice.first, slice.first + slice.count, [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
    for (std::size_t r = 0; r < calls.size(); ++r)
      if (call.kind == CollectiveKind::allreduce || static_cast<int>(r) == call.root)
        copy(at(calls[r]->out, i * size), piece, n * size);
  });
}

}  // namespace

void do_share(Calls calls, int rank) noexcept {
  const Call& mine = *calls[index(rank)];
  const auto size = size_of(mine.type);
  const auto traits = traits_of(mine.kind);
  if (traits.reduces && traits.out == BufferPart::own) {
    const auto own = sent_slice(mine, rank, rank);
    return reduce_slice(calls, own.first, own.first + own.count, [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
      copy(at(mine.out, (i - own.first) * size), piece, n * size);
    });
  }
  if (traits.reduces) return reduce_for_all(calls, rank);
  for (int r = 0; r < static_cast<int>(calls.size()); ++r) {
    const Call& theirs = *calls[index(r)];
    const auto to = received_slice(mine, rank, r);
    if (to.count == 0) continue;
    const void* from = mine.kind == CollectiveKind::bcast ? theirs.out : theirs.in;
    copy(at(mine.out, to.first * size), at(from, sent_slice(theirs, r, rank).first * size), to.count * size);
  }
}

}  // namespace mpigrad::threads
