// Exercise 13b, to lesson 13: sixty-four steps on a short tape.
//
// Return the state after 64 steps, with at most 40 entries on the tape: use segments of steps by recompute(f, u), where f is a
// function of one tensor that captures other variables by value ([=]). Gradients with respect to u and c are judged.
//
//   make 13b

#include "judge.h"
using namespace judge;

Tensor step(const Tensor& u, const Tensor& c, const Communicator& comm) { return u + 0.1 * tanh(c * (shift(u, comm) - u)); }

Tensor evolve(Tensor u, const Tensor& c, const Communicator& comm) {
  // ---- your lines
  // for (int t = 0; t < 64; ++t) u = step(u, c, comm);
  // ---- solution
  const auto segment = [=](Tensor at) {
    for (int t = 0; t < 8; ++t) at = step(at, c, comm);
    return at;
  };
  for (int s = 0; s < 8; ++s) u = recompute(segment, u);
  // ----
  return u;
}

#include "overlap/checks/13b_segments.inc"
