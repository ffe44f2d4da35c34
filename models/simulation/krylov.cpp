#include "models/simulation/krylov.h"

#include <cmath>
#include <limits>

#include "models/simulation/global_dot.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

struct System {
  const TensorMap& A;
  const TensorMap& preconditioner;
  std::int64_t limit = 0;
  double target = 0;  // of |b - A u|
  double epsilon = 0;
  const Communicator& comm;

  double dot(const Tensor& a, const Tensor& b) const { return global_dot(a, b, comm); }
  double norm(const Tensor& x) const { return global_norm(x, comm); }
  Tensor preconditioned(const Tensor& r) const { return preconditioner ? preconditioner(r) : r; }
};

// The state of a solve; r = b - A u up to rounding.
struct Iterate {
  Tensor u, r;
  std::int64_t iterations = 0;
  double norm = 0;          // of r
  Tensor probe{}, image{};  // a vector and A times it
};

// Until r is small or there are too many iterations.
void conjugate_gradients(const System& system, Iterate& at) {
  Tensor p;
  double before = 0;
  while (at.norm > system.target && at.iterations < system.limit) {
    const auto z = system.preconditioned(at.r);
    const double rz = system.dot(at.r, z);
    require(rz > 0 || std::isnan(rz), "[solve] the preconditioner is not positive definite: <r, M r> is {}, |r| {}", rz, at.norm);
    p = p ? z + (rz / before) * p : z;
    const auto q = system.A(p);
    const double curvature = system.dot(p, q);
    require(curvature > 0 || std::isnan(curvature),
            "[solve] conjugate gradients need a positive definite A: <p, A p> is {} in iteration {}; use Solver::bicgstab",
            curvature, at.iterations + 1);
    if (!at.probe) at.probe = p, at.image = q;
    const double step = rz / curvature;
    at.u = at.u + step * p;
    at.r = at.r - step * q;
    at.norm = system.norm(at.r);
    before = rz;
    ++at.iterations;
    if (std::isnan(at.norm)) return;
  }
}

// Until r is small, there are too many iterations, or a division by 0 asks for a new start.
void bicgstab(const System& system, Iterate& at) {
  const auto shadow = at.r;
  Tensor p, v;
  double rho = 0, alpha = 0, omega = 0;
  while (at.norm > system.target && at.iterations < system.limit) {
    const double next = system.dot(shadow, at.r);
    if (std::abs(next) <= system.epsilon * system.epsilon * at.norm * system.norm(shadow)) return;
    p = p ? at.r + (next / rho * (alpha / omega)) * (p - omega * v) : at.r;
    rho = next;
    const auto y = system.preconditioned(p);
    v = system.A(y);
    const double along = system.dot(shadow, v);
    if (along == 0) return;
    alpha = rho / along;
    at.u = at.u + alpha * y;
    at.r = at.r - alpha * v;
    at.norm = system.norm(at.r);
    ++at.iterations;
    if (std::isnan(at.norm) || at.norm <= system.target) return;
    const auto z = system.preconditioned(at.r), t = system.A(z);
    const double length = system.dot(t, t);
    if (length == 0) return;
    omega = system.dot(t, at.r) / length;
    at.u = at.u + omega * z;
    at.r = at.r - omega * t;
    at.norm = system.norm(at.r);
    if (std::isnan(at.norm) || omega == 0) return;
  }
}

}  // namespace

Tensor detail::krylov(const TensorMap& A, const Tensor& b, const KrylovOptions& options, SolveReport& report) {
  const Untaped scope;
  const bool symmetric = options.solver == Solver::conjugate_gradients;
  const double size = global_norm(b, options.communicator);
  const double epsilon = b.dtype() == DType::float64 ? std::numeric_limits<double>::epsilon()
                                                     : static_cast<double>(std::numeric_limits<float>::epsilon());
  const System system{A, options.preconditioner, options.iterations, options.tolerance * size, epsilon, options.communicator};
  report = {};
  if (size == 0) return zeros_like(b);
  Iterate at{.u = options.start ? options.start : zeros_like(b), .r = options.start ? b - A(options.start) : b};
  at.norm = system.norm(at.r);
  // The recurrences of r drift away from b - A u by rounding: a solve ends only when b - A u itself is small, and otherwise
  // starts anew from u, as long as that helps.
  for (double last = std::numeric_limits<double>::infinity(); at.norm > system.target;) {
    const auto before = at.iterations;
    symmetric ? conjugate_gradients(system, at) : bicgstab(system, at);
    at.r = b - A(at.u);
    at.norm = system.norm(at.r);
    report = {at.iterations, at.norm / size};
    if (at.norm <= system.target) break;
    require(at.iterations < system.limit && std::isfinite(at.norm) && at.iterations > before && at.norm < last / 2,
            "[solve] no convergence: |b - A u| / |b| is {} after {} of at most {} iterations of {}, the tolerance is {}{}",
            report.residual, at.iterations, system.limit, symmetric ? "conjugate gradients" : "BiCGStab", options.tolerance,
            at.iterations < system.limit && std::isfinite(at.norm) ? "; it no longer falls" : "");
    last = at.norm;
  }
  if (symmetric && at.probe) {
    // <A p, u> = <p, A u>, with A u = b - r.
    const auto product = b - at.r;
    const double left = system.dot(at.image, at.u), right = system.dot(at.probe, product);
    const double scale = system.norm(at.image) * system.norm(at.u) + system.norm(at.probe) * system.norm(product);
    require(std::abs(left - right) <= 10 * std::cbrt(epsilon) * scale,
            "[solve] conjugate gradients need a symmetric A: <A p, u> is {}, <p, A u> is {}; use Solver::bicgstab", left, right);
  }
  report = {at.iterations, at.norm / size};
  return at.u;
}

}  // namespace mpigrad
