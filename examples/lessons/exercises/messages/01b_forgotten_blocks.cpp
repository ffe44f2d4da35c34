// Exercise 1b, to lesson 1: find the bug in the adjoint of an allgather.
//
// Every rank that got a copy of x_r has a cotangent for it. This vjp takes the block of this rank from its *own* cotangent only:
// a test with equal cotangents on all ranks would only see a factor of P. Fix it.
//
//   make 01b

#include "judge.h"
using namespace judge;

struct Gathered {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "your_allgather", .communicates = true}; }
  Types infer(Inputs in) const { return {TensorType{Shape{in[0].dim(0) * comm.size()}, in[0].dtype()}}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return allgather(in[0], comm).as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    const auto n = g[0].dim(0) / comm.size();
    // ---- your lines
    // return {slice(g[0], 0, comm.rank() * n, (comm.rank() + 1) * n)};
    // ---- solution
    return {reduce_scatter(g[0], comm, Rows(static_cast<std::size_t>(comm.size()), n))};
    // ----
  }
};

#include "messages/checks/01b_forgotten_blocks.inc"
