// Exercise 11b, to lesson 11: the vjp of an exclusive scan.
//
// y_r = sum of x_s over s < r; y_0 = 0. As a matrix: ones below the diagonal. Which ranks read x_r? exscan(x, comm,
// ReduceOp::sum, Ties::split, Direction::down) begins at the last rank.
//
//   make 11b

#include "judge.h"
using namespace judge;

struct Before {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "your_exscan", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return exscan(in[0], comm).as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    // return {exscan(g[0], comm)};
    // ---- solution
    return {exscan(g[0], comm, ReduceOp::sum, Ties::split, Direction::down)};
    // ----
  }
};

#include "messages/checks/11b_exscan.inc"
