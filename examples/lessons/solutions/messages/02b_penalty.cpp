// The solution of exercise 2b, to lesson 2: a penalty that counts once.

#include "judge.h"
using namespace judge;

Tensor objective(const Tensor& data_share, const Tensor& w, const Communicator& comm) {
  // ---- your lines
  return data_share + once(0.5 * sum(square(w)), comm);
  // ----
}

#include "messages/checks/02b_penalty.inc"
