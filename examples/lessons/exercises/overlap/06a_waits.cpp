// Exercise 6a, to lesson 6: two requests and their waits.
//
// Temperature and pressure of the left neighbour arrive as two messages with tags 1 and 2. The program was rearranged, and the
// waits are wrong. Fix it. Each request, also that of a send, needs one wait.
//
//   make 06a

#include "judge.h"
using namespace judge;

Tensor from_the_left(const Tensor& t, const Tensor& p, const Communicator& comm) {
  const int left = (comm.rank() + comm.size() - 1) % comm.size(), right = (comm.rank() + 1) % comm.size();
  Request t_in = irecv(t.type(), comm, left, 1), p_in = irecv(p.type(), comm, left, 2);
  Request t_out = isend(t, comm, right, 1), p_out = isend(p, comm, right, 2);
  // ---- your lines
  // const Tensor their_p = wait(t_in), their_t = wait(p_in);
  // wait(t_out);
  // wait(p_out);
  // ---- solution
  const Tensor their_p = wait(p_in), their_t = wait(t_in);
  wait(t_out);
  wait(p_out);
  // ----
  return exp(their_t) - 2 * their_p;
}

#include "overlap/checks/06a_waits.inc"
