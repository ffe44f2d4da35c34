// Exercise 12b, to lesson 12: the vjp of a maximum over ranks, with ties.
//
// If k ranks attain the maximum, each of them gets 1/k of S, the sum of all cotangents. Here each of them gets all of S, and the
// gradient is k times too large. Fix it. cast(condition, DType::float64) turns true into 1.
//
//   make 12b

#include "judge.h"
using namespace judge;

struct Maximum {
  Communicator comm;
  static constexpr OpTraits traits() {
    return {.name = "your_maximum", .keeps_inputs = 1, .keeps_outputs = 1, .communicates = true};
  }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return allreduce(in[0], comm, ReduceOp::max).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    const Tensor attains = constant(cast(equal(at.input(0), at.output(0)), DType::float64));
    // ---- your lines
    // return {allreduce(g[0], comm) * attains};
    // ---- solution
    return {allreduce(g[0], comm) * attains / allreduce(attains, comm)};
    // ----
  }
};

#include "messages/checks/12b_ties.inc"
