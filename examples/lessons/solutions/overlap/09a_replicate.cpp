// The solution of exercise 9a, to lesson 9: right once, wrong twice.

#include "judge.h"
using namespace judge;

struct Copy {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "your_replicate", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const { return in[0].as_variable(); }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    return {allreduce_invariant(g[0], comm)};
    // ----
  }
};

#include "overlap/checks/09a_replicate.inc"
