// The solution of exercise 8b, to lesson 8: a softmax over classes that lie on many ranks.

#include "judge.h"
using namespace judge;

Tensor log_sum_exp(const Tensor& logits, const Communicator& comm) {
  // ---- your lines
  const Tensor most = constant(allreduce(max(logits), comm, ReduceOp::max));
  return log(allreduce(sum(exp(logits - most)), comm)) + most;
  // ----
}

#include "learning/checks/08b_log_sum_exp.inc"
