#pragma once
// Solutions of equations, with derivatives by the implicit function theorem: the iterations of a solver are never on the tape,
// and the vjp solves another equation.

#include <cstdint>
#include <memory>

#include "models/simulation/krylov.h"

namespace mpigrad {

struct SolveReports {
  SolveReport forward;  // of the last call
  SolveReport adjoint;  // of the last replay
};

struct SolveOptions {
  Solver solver = Solver::conjugate_gradients;
  double tolerance = 1e-10;            // of |b - A u| / |b|
  double adjoint_tolerance = 0;        // the same for the adjoint solve; 0: equal to `tolerance`
  std::int64_t iterations = 1000;      // at most
  std::int64_t adjoint_iterations{};   // 0: equal to `iterations`
  TensorMap preconditioner{};          // approximates the inverse of A; symmetric and positive definite for conjugate gradients
  TensorMap transposed{};              // A^T for the adjoint of BiCGStab; none: the vjp of A
  TensorMap adjoint_preconditioner{};  // for the adjoint of BiCGStab; none: `preconditioner`
  Tensor start{};                      // of the forward solve; none: 0. It has no derivative
  Communicator communicator{};         // if b is plain and A communicates: the ranks that hold parts of one vector
  std::shared_ptr<SolveReports> reports{};  // filled if given
};

// The solution u of A u = b, where A is linear and may communicate.
//
//   u_bar -> b_bar = A^-T u_bar (a solve),  p_bar = -(d(A u)/dp)^T b_bar for every tensor p that A uses
//
// Derivatives of any order. On distributed tensors the inner products have the same bits on any number of ranks (global_dot.h).
// If this also holds for A, it holds for u. A, `preconditioner` and `transposed` run again in the replay and obey the rules of
// recompute(): they capture by value. The error of the gradient comes from both solves. The tolerances limit relative residuals;
// the relative error of a solution can be larger by a factor of the condition number of A.
//
//   b   float32 or float64, plain or with a layout without partial sums; A(x) has its type and layout
//
// Errors: no convergence within `iterations`, with the residual; A communicates, b is plain and there is no communicator; A(0) is
// not 0; conjugate gradients find that A or the preconditioner is not positive definite, or A not symmetric; BiCGStab breaks
// down.
Tensor solve(const TensorMap& A, const Tensor& b, const SolveOptions& options = {});

struct FixedPointOptions {
  double tolerance = 1e-10;           // of |g(u) - u| / |g(u)|
  double adjoint_tolerance = 0;       // of the adjoint iteration; 0: equal to `tolerance`
  std::int64_t iterations = 1000;     // at most
  std::int64_t adjoint_iterations{};  // 0: equal to `iterations`
  Communicator communicator{};        // if the start is plain and g communicates
  std::shared_ptr<SolveReports> reports{};
};

// The limit u = g(u) of u_k+1 = g(u_k) from u_0 = start, which has no derivative. (B. Christianson, "Reverse accumulation and
// attractive fixed points", Optimization Methods and Software 3, 1994)
//
//   u_bar -> lambda = (dg/du)^T lambda + u_bar, iterated;  p_bar = (dg/dp)^T lambda for every tensor p that g uses
//
// Both iterations converge if the spectral radius of dg/du at u is below 1. Derivatives of any order; otherwise as solve().
// Errors: no convergence within `iterations`, with the last change.
Tensor fixed_point(const TensorMap& g, const Tensor& start, const FixedPointOptions& options = {});

}  // namespace mpigrad
