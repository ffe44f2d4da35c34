// The solution of exercise 13b, to lesson 13: sixty-four steps on a short tape.

#include "judge.h"
using namespace judge;

Tensor step(const Tensor& u, const Tensor& c, const Communicator& comm) { return u + 0.1 * tanh(c * (shift(u, comm) - u)); }

Tensor evolve(Tensor u, const Tensor& c, const Communicator& comm) {
  // ---- your lines
  const auto segment = [=](Tensor at) {
    for (int t = 0; t < 8; ++t) at = step(at, c, comm);
    return at;
  };
  for (int s = 0; s < 8; ++s) u = recompute(segment, u);
  // ----
  return u;
}

#include "overlap/checks/13b_segments.inc"
