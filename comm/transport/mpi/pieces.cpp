#include "comm/transport/mpi/pieces.h"

#include <numeric>

#include "comm/transport/reduce_into.h"

namespace mpigrad::mpi {

void start_exchange_of_blocks(const Collective& c, const BlockPieces& pieces, MPI_Comm communicator, int rank,
                              Requests& requests) {
  const auto call = requests.call();
  const auto item = size_of(c.type);
  const int ranks = static_cast<int>(c.counts.size());
  const auto me = static_cast<std::size_t>(rank);
  const auto mine = c.counts[me];
  const auto type = type_of(c.type);
  // The blocks of the other ranks, one after the other. Its own block stays where it is.
  requests.blocks = std::make_shared<Storage>((ranks - 1) * mine * item, DeviceKind::cpu);
  std::vector<std::int64_t> arrives(c.counts.size(), mine);
  arrives[me] = 0;
  const BlockPieces arriving{arrives, pieces.each};
  for (std::int64_t p = 0; p < pieces.pieces(); ++p) {
    MPI_Request* request = p == 0 ? &requests.last() : requests.add();
    auto& to = requests.layouts.emplace_back(pieces.layout(p, call));
    to.counts[me] = 0;
    const auto& from = requests.layouts.emplace_back(arriving.layout(p, call));
    check(MPIGRAD_MPI(MPI_Ialltoallv)(c.in, to.counts.data(), to.displacements.data(), type, requests.blocks->data(),
                                      from.counts.data(), from.displacements.data(), type, communicator, request),
          call);
  }
  const auto before = std::accumulate(c.counts.begin(), c.counts.begin() + rank, std::int64_t{0});
  const auto own = static_cast<const std::byte*>(c.in) + before * item;
  requests.arrived = [=, others = requests.blocks->data(), out = static_cast<std::byte*>(c.out), dtype = c.type, op = c.op,
                      each = pieces.each](std::size_t piece) {
    constexpr std::int64_t in_cache = 4096;  // elements
    const auto begin = std::min(mine, static_cast<std::int64_t>(piece) * each), end = std::min(mine, begin + each);
    for (auto i = begin; i < end; i += in_cache) {
      const auto n = std::min(in_cache, end - i);
      const auto block = [&](int r) { return (r == rank ? own : others + (r < rank ? r : r - 1) * mine * item) + i * item; };
      std::copy_n(block(0), n * item, out + i * item);
      for (int r = 1; r < ranks; ++r) reduce_into(out + i * item, block(r), n, dtype, op);
    }
  };
}

}  // namespace mpigrad::mpi
