// Exercise 14a, to lesson 14: fewer tapes.
//
// A pipeline of one layer on each rank, with a tape for each micro-batch. All ranks first record all micro-batches and so keep
// all activations. Rank s of P needs at most P - s tapes: it can replay one as soon as the ranks after it have their cotangents.
// Change the number of micro-batches that a rank records before its first replay.
//
//   make 14a

#include "judge.h"
using namespace judge;

Tensor gradient(const Tensor& w, const std::vector<Tensor>& batches, const Communicator& comm) {
  const int rank = comm.rank(), P = comm.size(), count = static_cast<int>(batches.size());
  std::deque<std::pair<std::unique_ptr<Tape>, Tensor>> open;
  Tensor sum_of_gradients = zeros_like(w);
  const auto forward = [&](int m) {
    auto tape = std::make_unique<Tape>();
    const auto& batch = batches[static_cast<std::size_t>(m)];
    const Tensor y = tanh(w * (rank == 0 ? batch.as_variable() : recv(batch.type(), comm, rank - 1)));
    if (rank + 1 < P) send(y, comm, rank + 1);
    const Tensor share = rank + 1 < P ? Tensor() : sum(square(y));
    tape->stop();
    open.emplace_back(std::move(tape), share);
    at_most(open.size(), P - rank);  // the judge's
  };
  const auto backward = [&] {
    auto [tape, share] = std::move(open.front());
    open.pop_front();
    sum_of_gradients = sum_of_gradients + tape->gradient(share, {w})[0];
  };
  // ---- your lines
  // const int ahead = count;
  // ---- solution
  const int ahead = std::min(P - 1 - rank, count);
  // ----
  for (int m = 0; m < ahead; ++m) forward(m);
  for (int m = 0; m < count; ++m) {
    if (m + ahead < count) forward(m + ahead);
    backward();
  }
  return sum_of_gradients;
}

#include "overlap/checks/14a_tapes.inc"
