#pragma once
// The Taylor test: checks a gradient and a Hessian-vector product by how fast the remainder of the Taylor expansion falls. It
// needs no tolerance chosen by hand, and its table shows at a glance which derivative is wrong.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/check/stacked.h"

namespace mpigrad {

struct TaylorOptions {
  std::vector<Across> inputs{}, outputs{};  // tensors that are not listed vary
  Tensors weights{};                        // u, of the outputs' types; empty: random ones, which differ per rank
  bool second = true;                       // check R2, too: f must be twice differentiable
  double step = 0.05;                       // the largest h
  int halvings = 6;                         // of h; 1 ... 40
  std::uint64_t seed = 1;
};

// R0, R1 or R2 for each h. The rate between one h and the next is log2 of the factor by which the remainder falls. Once the
// remainder has reached the rounding error of J, there is no rate: the remainder is exact there.
struct TaylorRemainder {
  std::vector<double> value;
  std::vector<std::optional<double>> rate;  // one entry fewer
  bool exact = false;                       // there is no rate anywhere
};

// The same on all ranks.
struct TaylorReport {
  std::vector<double> steps;
  std::vector<TaylorRemainder> remainders;  // R0, R1 and, if asked for, R2
  bool passed = true;
  std::string message;  // the failure, if there is one
};

// With J(x) = sum over ranks of <u, f(x)>, its gradient g and Hessian H at x, and a random direction v:
//
//   R0(h) = |J(x + h v) - J(x)|                                 falls as h    (says only that J is smooth along v)
//   R1(h) = |J(x + h v) - J(x) - h <g, v>|                      falls as h^2, if g is the gradient
//   R2(h) = |J(x + h v) - J(x) - h <g, v> - h^2/2 <v, H v>|     falls as h^3, if H is the Hessian
//
// (Taylor's theorem; the test is that of P. Farrell et al., "Automated derivation of the adjoint of high-level transient finite
// element programs", SIAM J. Sci. Comput. 2013.) It passes if R1 and R2 fall that fast, to a tenth and steadily, at the two
// smallest h at which there is a rate, or are exact, as R1 of a linear and R2 of a quadratic function. Where J changes by no more
// than a hundred times its rounding error, there is no rate at any h, and the test does not pass.
//
//   f             several tensors to several; runs halvings + 2 times and is differentiated; all runs communicate equally
//   x             the point; floating-point tensors, which become variables. Double precision shows the most
//   communicator  all ranks that f communicates with. Collective
//
// Errors: an input that is not floating-point, weights of other types; exceptions of f. A wrong rate is in the report.
TaylorReport taylor_test(const TensorFunction& f, const Tensors& x, const Communicator& communicator,
                         const TaylorOptions& options = {});
// The same; an Error on all ranks if it does not pass: "[taylor] NAME on P ranks: what was wrong".
void require_taylor(const std::string& name, const TensorFunction& f, const Tensors& x, const Communicator& communicator,
                    const TaylorOptions& options = {});

// The report as a table: a line for each h with h, and each remainder with its rate, or "exact".
std::string to_text(const TaylorReport& report);

}  // namespace mpigrad
