// Exercise 10b, to lesson 10: a term of statistics that counts once.
//
// VICReg's variance term: the sum over columns of relu(1 - standard deviation), over the rows of all ranks. Every rank can
// compute all of it, and contributes all of it: P times the gradient compared with terms that are shares. Return this rank's
// share; after plain allreduces, as here, the shares of all ranks may be equal.
//
//   make 10b

#include "judge.h"
using namespace judge;

Tensor share(const Tensor& z, std::int64_t rows, const Communicator& comm) {
  const Tensor mean = allreduce(sum(z, {0}, true), comm) / double(rows);
  const Tensor variance = allreduce(sum(square(z - mean), {0}, true), comm) / double(rows);
  // ---- your lines
  // return sum(relu(1 - sqrt(variance + 1e-4)));
  // ---- solution
  return sum(relu(1 - sqrt(variance + 1e-4))) / double(comm.size());  // P equal shares; the whole on one rank is right, too
  // ----
}

#include "learning/checks/10b_variance_term.inc"
