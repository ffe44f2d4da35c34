// Exercise 0a, to lesson 0: the vjp of a norm.
//
// y = |x|, the square root of the sum of squares. at.input(0) is x, g[0] is ybar. Write xbar = J^T ybar with operations of the
// library, which have derivatives themselves: the second derivative is judged, too.
//
//   make 00a

#include "judge.h"
using namespace judge;

struct Norm {
  static constexpr OpTraits traits() { return {.name = "your_norm", .keeps_inputs = 1}; }
  Types infer(Inputs in) const { return {TensorType{Shape{}, in[0].dtype()}}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return sqrt(dot(in[0], in[0])).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    // ---- your lines
    // return {g[0] * at.input(0)};  // this is not it
    // ---- solution
    const Tensor& x = at.input(0);
    return {g[0] * x / sqrt(dot(x, x))};
    // ----
  }
};

#include "messages/checks/00a_norm.inc"
