// Exercise 9b, to lesson 9: the Hessian times a vector.
//
// share(w) is this rank's share of a loss; w and v are replicated. Return H v, with H the Hessian of the sum of the shares, exact
// to rounding: two gradients, no differences. tape.gradient(loss, {w}, Record::yes) records the replay, too.
//
//   make 09b

#include "judge.h"
using namespace judge;

Tensor hessian_vector(const std::function<Tensor(const Tensor&)>& share, const Tensor& w, const Tensor& v,
                      [[maybe_unused]] const Communicator& comm) {
  Tape tape;
  // ---- your lines
  // return tape.gradient(share(w), {w})[0] * v + 0 * double(comm.size());
  // ---- solution
  const Tensor g = tape.gradient(share(w), {w}, Record::yes)[0];
  return tape.gradient(dot(g, v), {w})[0];
  // ----
}

#include "overlap/checks/09b_hessian_vector.inc"
