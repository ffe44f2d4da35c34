// Exercise 3b, to lesson 3: a mean over all ranks.
//
// Subtract from every column of x the mean of that column over the rows of all ranks (`rows` is their number). Values and
// gradients must be those of one process.
//
//   make 03b

#include "judge.h"
using namespace judge;

Tensor centred(const Tensor& x, std::int64_t rows, const Communicator& comm) {
  // ---- your lines
  // return x - sum(x, {0}, true) / double(rows) + 0 * double(comm.size());
  // ---- solution
  return x - allreduce(sum(x, {0}, true), comm) / double(rows);
  // ----
}

#include "messages/checks/03b_centre.inc"
