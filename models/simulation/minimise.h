#pragma once
// Minimisation of functions of tensors that may be split over ranks: L-BFGS, and Gauss-Newton with conjugate gradients.
//
// Parameters have layouts without partial sums, or are plain and equal on all ranks. Inner products of vectors do not depend on
// the number of ranks (global_dot.h). Both functions are collective over the ranks that share the objective, and return the same
// numbers on all of them. Tapes of the caller do not see them: results have no derivative.

#include <cstdint>
#include <functional>
#include <string>

#include "comm/communicator.h"
#include "framework/engine/jvp.h"

namespace mpigrad {

// A point, and how the minimisation reached it.
struct Minimum {
  Tensors x{};
  double value = 0;          // of the objective
  double gradient_norm = 0;  // over all parameters
  std::int64_t iterations = 0;
  std::int64_t evaluations = 0;  // of the objective with its gradient; Gauss-Newton: of the residual, those of products included
  bool converged = false;        // |gradient| is within the tolerance
  std::string reason{};          // why it ended
};
// Called after each iteration; false ends the minimisation.
using AfterIteration = std::function<bool(const Minimum&)>;

struct LbfgsOptions {
  int pairs = 10;                           // of steps and changes of the gradient that are kept
  std::int64_t iterations = 100;            // at most
  double tolerance = 1e-6;                  // ends when |gradient| is at most this times |gradient| at the start
  double first_step = 1;                    // length of the first step that is tried
  double decrease = 1e-4, curvature = 0.9;  // c1 and c2 of the strong Wolfe conditions
  int search = 20;                          // evaluations of one line search, at most
  Communicator communicator{};              // if the objective is a plain tensor: the ranks whose values add up
  AfterIteration after{};
};

// The minimum of the sum over ranks of objective(x), near x, by the two-loop recursion and a line search with the strong Wolfe
// conditions (J. Nocedal and S. Wright, "Numerical Optimization", 2006, algorithms 7.4, 3.5 and 3.6).
//
// The objective has one element: a partial sum or a replicated value with a layout, or a plain tensor. It replicates plain
// parameters, replicate(x, comm), as for Tape::gradient. A value that is not finite counts as too large.
//
// `reason` says whether the tolerance, the number of iterations, `after` or rounding (no lower value along the search direction)
// ended it. Errors: the value or gradient at the start is not finite; the gradient of a plain parameter differs among the ranks
// of `communicator`; numbers among the options out of range.
Minimum lbfgs(const std::function<Tensor(const Tensors&)>& objective, const Tensors& x, const LbfgsOptions& options = {});

struct GaussNewtonOptions {
  std::int64_t iterations = 50;         // at most
  double tolerance = 1e-8;              // ends when |J^T r| is at most this times |J^T r| at the start
  double damping = 0;                   // adds damping |step|^2 / 2 to what a step minimises (Levenberg, 1944)
  double inner_tolerance = 1e-2;        // of conjugate gradients, relative
  std::int64_t inner_iterations = 100;  // of each step, at most
  Communicator communicator{};          // if residuals are plain and differ from rank to rank: these ranks
  AfterIteration after{};
};

// The minimum of |residual(x)|^2 / 2, near x. Each step minimises |r + J step|^2 by conjugate gradients, with products J v by
// jvp() and J^T w by a vjp, and is halved until the value falls enough (Nocedal and Wright, sections 7.1 and 10.3). An iteration
// of conjugate gradients evaluates the residual twice. Residuals are tensors of any types, with layouts without partial sums or
// plain. `reason` and errors as for lbfgs().
Minimum gauss_newton(const TensorFunction& residual, const Tensors& x, const GaussNewtonOptions& options = {});

}  // namespace mpigrad
