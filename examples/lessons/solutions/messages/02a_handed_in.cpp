// The solution of exercise 2a, to lesson 2: a gradient that does not depend on P.

#include "judge.h"
using namespace judge;

Tensor loss(const Tensor& x, const Communicator& comm) {
  const Tensor s = allreduce(sum(square(x)), comm);
  // ---- your lines
  return s * sum(square(x));  // this rank's share of s^2: the shares of all ranks add up to it
  // ----
}

#include "messages/checks/02a_handed_in.inc"
