// Exercise 2a, to lesson 2: a gradient that does not depend on P.
//
// L = s^2, where s is the sum of squares of all ranks' data. Every rank knows s and contributes s^2: the gradient is P times too
// large. Contribute another value, so that the gradient is that of one process with all data.
//
//   make 02a

#include "judge.h"
using namespace judge;

Tensor loss(const Tensor& x, const Communicator& comm) {
  const Tensor s = allreduce(sum(square(x)), comm);
  // ---- your lines
  // return square(s);
  // ---- solution
  return s * sum(square(x));  // this rank's share of s^2: the shares of all ranks add up to it
  // ----
}

#include "messages/checks/02a_handed_in.inc"
