// The solution of exercise 5b, to lesson 5: a convolution on slabs.

#include "judge.h"
using namespace judge;

Tensor layer(const Tensor& x, const Tensor& w, const Communicator& comm, const BoxPlanPtr& halo) {
  // ---- your lines
  return local::conv(exchange(x, comm, halo), replicate(w, comm));
  // ----
}

#include "messages/checks/05b_layer.inc"
