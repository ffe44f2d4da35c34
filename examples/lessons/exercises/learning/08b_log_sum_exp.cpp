// Exercise 8b, to lesson 8: a softmax over classes on many ranks.
//
// Return, on every rank, log(sum over all ranks' logits of exp(logit)), by plain allreduces: the result is a value of each rank,
// and one rank contributes it. Some logits are 1000: subtract the largest logit of all ranks, and add it again after the
// logarithm. Treat it as constant (constant()).
//
//   make 08b

#include "judge.h"
using namespace judge;

Tensor log_sum_exp(const Tensor& logits, const Communicator& comm) {
  // ---- your lines
  // return log(allreduce(sum(exp(logits)), comm));
  // ---- solution
  const Tensor most = constant(allreduce(max(logits), comm, ReduceOp::max));
  return log(allreduce(sum(exp(logits - most)), comm)) + most;
  // ----
}

#include "learning/checks/08b_log_sum_exp.inc"
