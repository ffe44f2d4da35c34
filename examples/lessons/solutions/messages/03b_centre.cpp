// The solution of exercise 3b, to lesson 3: a mean over all ranks.

#include "judge.h"
using namespace judge;

Tensor centred(const Tensor& x, std::int64_t rows, const Communicator& comm) {
  // ---- your lines
  return x - allreduce(sum(x, {0}, true), comm) / double(rows);
  // ----
}

#include "messages/checks/03b_centre.inc"
