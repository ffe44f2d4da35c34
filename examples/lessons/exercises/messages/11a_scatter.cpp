// Exercise 11a, to lesson 11: the vjp of a scatter.
//
// The root holds one number for each rank, the others nothing; afterwards every rank holds its own number. Turn the matrix on its
// side. A rank that holds nothing has an empty cotangent, [0].
//
//   make 11a

#include "judge.h"
using namespace judge;

struct Scattered {
  Communicator comm;
  int root = 0;
  static constexpr OpTraits traits() { return {.name = "your_scatter", .communicates = true}; }
  Types infer(Inputs in) const { return {TensorType{Shape{1}, in[0].dtype()}}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return scatter(in[0], comm, root).as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    // ---- your lines
    // return {zeros({comm.rank() == root ? comm.size() : 0}, g[0].dtype())};
    // ---- solution
    return {gather(g[0], comm, root)};
    // ----
  }
};

#include "messages/checks/11a_scatter.inc"
