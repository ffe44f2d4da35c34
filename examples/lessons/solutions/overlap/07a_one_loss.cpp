// The solution of exercise 7a, to lesson 7: a loss on one rank.

#include "judge.h"
using namespace judge;

Tensor gradient(const Tensor& x, const Communicator& comm) {
  Tape tape;
  const Tensor z = square(shift(x, comm, 1));
  const bool last = comm.rank() == comm.size() - 1;
  // ---- your lines
  return tape.gradient(last ? sum(z) : Tensor(), {x})[0];
  // ----
}

#include "overlap/checks/07a_one_loss.inc"
