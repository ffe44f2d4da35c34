// The solution of exercise 10b, to lesson 10: a term of statistics, handed in once.

#include "judge.h"
using namespace judge;

Tensor share(const Tensor& z, std::int64_t rows, const Communicator& comm) {
  const Tensor mean = allreduce(sum(z, {0}, true), comm) / double(rows);
  const Tensor variance = allreduce(sum(square(z - mean), {0}, true), comm) / double(rows);
  // ---- your lines
  return sum(relu(1 - sqrt(variance + 1e-4))) / double(comm.size());  // P equal shares; one rank alone would do as well
  // ----
}

#include "learning/checks/10b_variance_term.inc"
