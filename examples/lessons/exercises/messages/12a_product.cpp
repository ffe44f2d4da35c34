// Exercise 12a, to lesson 12: the vjp of a product over ranks, with zeros.
//
// xbar_r = S times the product of the other ranks' x, where S is the sum of all cotangents. Division fails where x_r is 0.
// exscan(x, comm, ReduceOp::prod) is the product over all ranks before this one; there is another direction.
//
//   make 12a

#include "judge.h"
using namespace judge;

struct Product {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "your_product", .keeps_inputs = 1, .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return allreduce(in[0], comm, ReduceOp::prod).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    const Tensor& x = at.input(0);
    // ---- your lines
    // return {allreduce(g[0], comm) * allreduce(x, comm, ReduceOp::prod) / x};
    // ---- solution
    const Tensor before = exscan(x, comm, ReduceOp::prod);
    const Tensor behind = exscan(x, comm, ReduceOp::prod, Ties::split, Direction::down);
    return {allreduce(g[0], comm) * before * behind};
    // ----
  }
};

#include "messages/checks/12a_product.inc"
