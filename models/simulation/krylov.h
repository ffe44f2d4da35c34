#pragma once
// Iterative solvers of linear equations, outside of the tape; solve() of implicit.h calls them.

#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad {

using TensorMap = std::function<Tensor(const Tensor&)>;

// The iterations and the accuracy of a solver.
struct SolveReport {
  std::int64_t iterations = 0;  // applications of A by conjugate gradients or of g; pairs of applications of A by BiCGStab
  double residual = 0;          // |b - A u| / |b|, computed anew from u; for a fixed point |g(u) - u| / |g(u)|
};

enum class Solver : std::uint8_t {
  conjugate_gradients,  // A is symmetric and positive definite (M. Hestenes and E. Stiefel, 1952)
  bicgstab,             // any other A (H. van der Vorst, SIAM J. Sci. Stat. Comput. 13, 1992)
};

namespace detail {

struct KrylovOptions {
  Solver solver = Solver::conjugate_gradients;
  double tolerance = 0;
  std::int64_t iterations = 0;
  TensorMap preconditioner{};
  Tensor start{};
  Communicator communicator{};
};

// The solution of A u = b, with the options and errors of solve(); A(x) has the type and layout of b.
Tensor krylov(const TensorMap& A, const Tensor& b, const KrylovOptions& options, SolveReport& report);

}  // namespace detail
}  // namespace mpigrad
