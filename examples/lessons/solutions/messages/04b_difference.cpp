// The solution of exercise 4b, to lesson 4: a difference across the cuts.

#include "judge.h"
using namespace judge;

Tensor difference(const Tensor& x, const Communicator& comm) {
  const int r = comm.rank(), P = comm.size();
  const auto n = x.dim(0);
  // ---- your lines
  const Tensor next =
      sendrecv(slice(x, 0, 0, 1), comm, {.dest = r == 0 ? proc_null : r - 1, .source = r == P - 1 ? proc_null : r + 1});
  // ----
  return concatenate({slice(x, 0, 1, n), next}, 0) - x;
}

#include "messages/checks/04b_difference.inc"
