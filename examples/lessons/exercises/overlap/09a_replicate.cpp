// Exercise 9a, to lesson 9: right once, wrong twice.
//
// `Copy` marks the place where one value becomes P copies. This vjp sums the copies' cotangents, and first derivatives are right.
// Second ones are P times too large, because the adjoint of a plain allreduce is an allreduce. Change one word.
//
//   make 09a

#include "judge.h"
using namespace judge;

struct Copy {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "your_replicate", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const { return in[0].as_variable(); }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    // return {allreduce(g[0], comm)};
    // ---- solution
    return {allreduce_invariant(g[0], comm)};
    // ----
  }
};

#include "overlap/checks/09a_replicate.inc"
