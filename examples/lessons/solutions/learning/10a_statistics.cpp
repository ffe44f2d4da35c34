// The solution of exercise 10a, to lesson 10: statistics of a batch on many ranks.

#include "judge.h"
using namespace judge;

Tensor normalised(const Tensor& x, std::int64_t rows, const Communicator& comm) {
  // ---- your lines
  const Tensor mean = allreduce(sum(x, {0}, true), comm) / double(rows);
  const Tensor variance = allreduce(sum(square(x - mean), {0}, true), comm) / double(rows);
  // ----
  return (x - mean) / sqrt(variance + 1e-5);
}

#include "learning/checks/10a_statistics.inc"
