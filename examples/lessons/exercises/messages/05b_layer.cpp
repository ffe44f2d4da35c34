// Exercise 5b, to lesson 5: a convolution on slabs.
//
// x is this rank's planes of a volume, w the replicated kernel; exchange(x, comm, halo) returns the planes with one ghost plane
// on either side (zeros beyond the ends), local::conv(x, w) convolves the planes of this rank without padding. Compose the layer.
//
//   make 05b

#include "judge.h"
using namespace judge;

Tensor layer(const Tensor& x, const Tensor& w, const Communicator& comm, const BoxPlanPtr& halo) {
  // ---- your lines
  // return local::conv(exchange(x, comm, halo), w);  // the values are right
  // ---- solution
  return local::conv(exchange(x, comm, halo), replicate(w, comm));
  // ----
}

#include "messages/checks/05b_layer.inc"
