#pragma once
// The Taylor test: whether a gradient and a Hessian-vector product are those of the function, by how fast what they leave over
// falls. It needs no tolerance that somebody has to guess, and its table shows at a glance which derivative is wrong.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/check/stacked.h"

namespace mpigrad {

struct TaylorOptions {
  std::vector<Across> inputs{}, outputs{};  // those that are not listed vary
  Tensors weights{};                        // u, of the outputs' types; random ones, which differ per rank, if there are none
  bool second = true;                       // R2, too: f must be differentiable twice
  double step = 0.05;                       // the largest h
  int halvings = 6;                         // of h; 1 ... 40
  std::uint64_t seed = 1;
};

// R0, R1 or R2 for each h. The rate between one h and the next is log2 of how much it falls; nothing where it has reached what
// rounding leaves of J, so that no rate can be seen: there it is exact.
struct TaylorRemainder {
  std::vector<double> value;
  std::vector<std::optional<double>> rate;  // one fewer
  bool exact = false;                       // no rate can be seen anywhere
};

// The same on all ranks.
struct TaylorReport {
  std::vector<double> steps;
  std::vector<TaylorRemainder> remainders;  // R0, R1 and, if asked for, R2
  bool passed = true;
  std::string message;  // what was wrong
};

// With J(x) = sum over ranks of <u, f(x)>, its gradient g and Hessian H at x, and a random direction v:
//
//   R0(h) = |J(x + h v) - J(x)|                                 falls as h    (says only that J is smooth along v)
//   R1(h) = |J(x + h v) - J(x) - h <g, v>|                      falls as h^2, if g is the gradient
//   R2(h) = |J(x + h v) - J(x) - h <g, v> - h^2/2 <v, H v>|     falls as h^3, if H is the Hessian
//
// (Taylor's theorem; the test is that of P. Farrell et al., "Automated derivation of the adjoint of high-level transient finite
// element programs", SIAM J. Sci. Comput. 2013.) It passes if R1 and R2 fall that fast, to a tenth and steadily, at the two
// smallest h at which that can be seen, or are exact, as R1 of a linear and R2 of a quadratic function. Where J changes by no
// more than a hundred times its rounding nothing can be seen, and it does not pass.
//
//   f             several tensors to several; runs halvings + 2 times and is differentiated, communicating alike
//   x             the point; floating-point tensors, which become variables. Double precision shows the most
//   communicator  all ranks that f communicates with. Collective
//
// Errors: an input that is not floating-point, weights of other types; what f itself throws. A wrong rate is in the report.
TaylorReport taylor_test(const TensorFunction& f, const Tensors& x, const Communicator& communicator,
                         const TaylorOptions& options = {});
// The same; an Error on all ranks if it does not pass: "[taylor] NAME on P ranks: what was wrong".
void require_taylor(const std::string& name, const TensorFunction& f, const Tensors& x, const Communicator& communicator,
                    const TaylorOptions& options = {});

// A line for each h: h, and each remainder with its rate, or "exact".
std::string to_text(const TaylorReport& report);

}  // namespace mpigrad
