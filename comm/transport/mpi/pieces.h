#pragma once
// Large calls between ranks that share memory, cut into the pieces that MPI gets.
//
// MPICH 4.0.2 allocates buffers as large as a message, new ones for each message, even between ranks that share memory: a program
// of MPI only takes 70 ms for the allreduce of 31 million float32 on two ranks as one message. Pieces of this size, which fit
// into the caches, take 25 ms if they are called one after the other and 35 ms if all are started together. Over a network pieces
// would only add latency.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport/mpi/requests.h"

namespace mpigrad::mpi {

// The elements of a piece, if a rank has at most `count` of them.
inline std::int64_t elements_of_piece(std::int64_t count, std::int64_t item, bool in_memory) {
  constexpr std::int64_t piece_bytes = 2 << 20;
  constexpr int most_pieces = 256;  // limit on simultaneous requests of MPI
  return in_memory ? std::max(piece_bytes / item, (count + most_pieces - 1) / most_pieces) : std::max<std::int64_t>(count, 1);
}

// One piece of every rank's block: elements [first, first + count) of it.
struct BlockPieces {
  std::span<const std::int64_t> counts;  // of the whole blocks
  std::int64_t each = 1;                 // elements of a piece

  std::int64_t pieces() const {
    const auto longest = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    return std::max<std::int64_t>(1, (longest + each - 1) / each);
  }
  std::int64_t first(std::int64_t piece, int rank) const {
    return std::min(counts[static_cast<std::size_t>(rank)], piece * each);
  }
  std::int64_t count(std::int64_t piece, int rank) const { return first(piece + 1, rank) - first(piece, rank); }
  // Of all ranks, where their whole blocks follow one another.
  Layout layout(std::int64_t piece, std::string_view call) const {
    Layout result(counts, call);
    for (int r = 0; r < static_cast<int>(counts.size()); ++r) {
      const auto at = static_cast<std::size_t>(r);
      result.displacements[at] += checked<Displacement>(first(piece, r), call);
      result.counts[at] = checked<Count>(count(piece, r), call);
    }
    return result;
  }
};

// Starts a reduce-scatter as an exchange of blocks, which this rank adds up, in the order of ranks, when it waits. MPI would add
// them up inside whatever call makes progress, and a profile would name that call.
void start_exchange_of_blocks(const Collective& call, const BlockPieces& pieces, MPI_Comm communicator, int rank,
                              Requests& requests);

}  // namespace mpigrad::mpi
