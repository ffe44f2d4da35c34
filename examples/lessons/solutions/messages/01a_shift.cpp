// The solution of exercise 1a, to lesson 1: the vjp of a ring shift.

#include "judge.h"
using namespace judge;

struct Shift {
  Communicator comm;
  int by = 1;
  static constexpr OpTraits traits() { return {.name = "your_shift", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return shift(in[0], comm, by).as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    return {shift(g[0], comm, -by)};
    // ----
  }
};

#include "messages/checks/01a_shift.inc"
