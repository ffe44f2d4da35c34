#pragma once
// Passes blocks of samples around a ring of ranks: every rank visits the blocks of all ranks, one at a time.

#include "comm/collectives/collectives.h"
#include "comm/messages/point_to_point.h"

namespace mpigrad::contrastive {

// Calls visit(block, owner) for the blocks of all ranks, this rank's first, and receives the next block meanwhile. A block is a
// list of tensors with rows[owner] rows each, such as embeddings and labels. Differentiable.
template <class Visit>
void for_each_block(const Tensors& own, const Communicator& comm, const Rows& rows, const Visit& visit) {
  const int p = comm.size(), r = comm.rank(), next = (r + 1) % p, before = (r + p - 1) % p;
  Tensors block = own;
  for (int step = 0; step < p; ++step) {
    std::vector<Request> coming, sent;
    const int owner = (r + p - step) % p;
    if (step + 1 < p)
      for (std::size_t i = 0; i < block.size(); ++i) {
        auto type = own[i].type();
        type.shape[0] = rows[static_cast<std::size_t>((owner + p - 1) % p)];
        coming.push_back(irecv(type, comm, before, static_cast<int>(i)));
        sent.push_back(isend(block[i], comm, next, static_cast<int>(i)));
      }
    visit(block, owner);
    for (std::size_t i = 0; i < sent.size(); ++i) block[i] = wait(coming[i]);
    for (auto& request : sent) wait(request);
  }
}

}  // namespace mpigrad::contrastive
