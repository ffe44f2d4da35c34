// The solution of exercise 9b, to lesson 9: the Hessian times a vector.

#include "judge.h"
using namespace judge;

Tensor hessian_vector(const std::function<Tensor(const Tensor&)>& share, const Tensor& w, const Tensor& v,
                      [[maybe_unused]] const Communicator& comm) {
  Tape tape;
  // ---- your lines
  const Tensor g = tape.gradient(share(w), {w}, Record::yes)[0];
  return tape.gradient(dot(g, v), {w})[0];
  // ----
}

#include "overlap/checks/09b_hessian_vector.inc"
