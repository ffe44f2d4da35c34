// The solution of exercise 6b, to lesson 6: work while a message travels.

#include "judge.h"
using namespace judge;

Tensor overlapped(const Tensor& x, const Communicator& comm) {
  const int left = (comm.rank() + comm.size() - 1) % comm.size(), right = (comm.rank() + 1) % comm.size();
  // ---- your lines
  Request in = irecv(x.type(), comm, left), out = isend(x, comm, right);
  const Tensor work = square(tanh(x));
  const Tensor theirs = wait(in);
  wait(out);
  // ----
  return work + theirs;
}

#include "overlap/checks/06b_overlap.inc"
