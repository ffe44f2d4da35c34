// Exercise 7b, to lesson 7: unused inputs get zeros.
//
// A bcast from `root` uses only the root's x. No rank reads the x of the others: their cotangents are zeros, but they take part.
// This vjp confuses two ranks. Fix it.
//
//   make 07b

#include "judge.h"
using namespace judge;

struct FromRoot {
  Communicator comm;
  int root = 0;
  static constexpr OpTraits traits() { return {.name = "your_bcast", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return bcast(in[0], comm, root).as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    // return {reduce(g[0], comm, 0)};
    // ---- solution
    return {reduce(g[0], comm, root)};
    // ----
  }
};

#include "overlap/checks/07b_wrong_root.inc"
