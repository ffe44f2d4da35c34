// Exercise 4b, to lesson 4: a difference across the cuts.
//
// A long vector lies in blocks on the ranks. Return this rank's block of d_i = x_{i+1} - x_i, where x is 0 beyond the last
// element. No vjp is needed: compositions of operations have one. sendrecv(t, comm, {.dest = a, .source = b}) sends t to a and
// returns the message of b; proc_null is not a rank: it sends zeros.
//
//   make 04b

#include "judge.h"
using namespace judge;

Tensor difference(const Tensor& x, const Communicator& comm) {
  const int r = comm.rank(), P = comm.size();
  const auto n = x.dim(0);
  // ---- your lines
  // const Tensor next = zeros({1}, DType::float64) + 0 * double(r + P);  // right on one rank only
  // ---- solution
  const Tensor next =
      sendrecv(slice(x, 0, 0, 1), comm, {.dest = r == 0 ? proc_null : r - 1, .source = r == P - 1 ? proc_null : r + 1});
  // ----
  return concatenate({slice(x, 0, 1, n), next}, 0) - x;
}

#include "messages/checks/04b_difference.inc"
