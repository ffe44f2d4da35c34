#include "models/simulation/implicit.h"

#include <cmath>
#include <utility>

#include "framework/engine/jvp.h"
#include "models/simulation/global_dot.h"
#include "models/simulation/krylov.h"
#include "ops/elementwise/elementwise.h"
#include "ops/traced.h"

namespace mpigrad {
namespace {

bool same_form(const Tensor& a, const Tensor& b) {
  const auto &p = a.layout(), &q = b.layout();
  return a.type() == b.type() && (p == q || (p && q && *p == *q));
}
void require_unknown(const char* op, const char* name, const Tensor& x) {
  require(x && (x.dtype() == DType::float32 || x.dtype() == DType::float64), "[{}] {} is float32 or float64: {}", op, name, x);
  require(!x.layout() || !x.layout()->has(Placement::partial), "[{}] {} is a partial sum: {}", op, name, x);
  require(x.device() != DeviceKind::dry, "[{}] the dry device has no elements to iterate on: {}", op, x);
}

void require_group(const char* op, const detail::Used& used, const Tensor& x, const Communicator& comm) {
  require(!used.communicates || x.layout() || comm,
          "[{}] the function communicates, and its argument is plain: options.communicator says which ranks hold parts of it: {}",
          op, x);
}

// (df/dx)^T v at x, of a function f of one tensor.
Tensor pulled_back(const TensorMap& f, const Tensor& x, const Tensor& v) {
  const auto at = detail::argument_of(x);
  Tape tape;
  const auto y = f(at);
  return tape.vjp({y}, {v.without_layout()}, {at})[0].with_layout(x.layout());
}
// (df/dp)^T v for the tensors p that f(x) uses.
Tensors pulled_back_to(const Tensors& used, const TensorMap& f, const Tensor& x, const Tensor& v) {
  Tape tape;
  const auto y = f(x);
  auto cotangents = tape.vjp({y}, {v.without_layout()}, used);
  for (auto& each : cotangents) each = each.without_layout();
  return cotangents;
}

}  // namespace

Tensor solve(const TensorMap& A, const Tensor& b, const SolveOptions& options) {
  require_unknown("solve", "b", b);
  require(options.tolerance > 0 && options.adjoint_tolerance >= 0 && options.iterations > 0 && options.adjoint_iterations >= 0,
          "[solve] tolerances and numbers of iterations are positive: {}, {}, {}, {}", options.tolerance,
          options.adjoint_tolerance, options.iterations, options.adjoint_iterations);
  require(!options.start || same_form(options.start, b), "[solve] the start has the type and layout of b: {}, {}", options.start,
          b);
  const detail::KeepNoArrivals here;
  // A(0) shows what A uses, and whether it is linear.
  const auto zero = zeros_like(b).as_variable();
  const auto trace = detail::traced([&] { return Tensors{A(zero)}; });
  const auto& image = trace.outputs[0];
  require(same_form(image, b), "[solve] A(x) has the type and layout of x: {}, {}", image, b);
  const auto used = detail::used_by(trace, {zero});
  require_group("solve", used, b, options.communicator);
  const double offset = global_norm(image, options.communicator);
  require(offset == 0, "[solve] A is linear, but |A(0)| is {}", offset);
  SolveReport report;
  auto u = detail::krylov(A, b,
                          {.solver = options.solver,
                           .tolerance = options.tolerance,
                           .iterations = options.iterations,
                           .preconditioner = options.preconditioner,
                           .start = options.start,
                           .communicator = options.communicator},
                          report);
  if (options.reports) options.reports->forward = report;
  if (b.is_constant() && used.tensors.empty()) return u.as_constant().with_layout(b.layout());
  u = u.as_variable().with_layout(b.layout());
  if (!Tape::recording()) return u;

  Tensors inputs{b.without_layout()};
  inputs.insert(inputs.end(), used.tensors.begin(), used.tensors.end());
  // A u = b:  b_bar = A^-T u_bar,  p_bar = -(d(A u)/dp)^T b_bar
  Tape::record({.name = "solve",
                .communicates = used.communicates,
                .keeps_outputs = 1,
                .inputs = std::move(inputs),
                .outputs = {u},
                .vjp = [A, options, used = used.tensors, layout = b.layout()](const Replay& at, Inputs g) {
                  const detail::KeepNoArrivals here;
                  const auto u = at.output(0).with_layout(layout);
                  auto adjoint = options;
                  adjoint.start = {};
                  adjoint.reports = options.reports ? std::make_shared<SolveReports>() : nullptr;
                  if (options.adjoint_tolerance > 0) adjoint.tolerance = options.adjoint_tolerance;
                  if (options.adjoint_iterations > 0) adjoint.iterations = options.adjoint_iterations;
                  auto transposed = A;
                  if (options.solver != Solver::conjugate_gradients) {
                    if (options.adjoint_preconditioner) adjoint.preconditioner = options.adjoint_preconditioner;
                    adjoint.adjoint_preconditioner = options.preconditioner;
                    adjoint.transposed = A;
                    transposed = options.transposed ? options.transposed
                                                    : TensorMap([A](const Tensor& v) { return pulled_back(A, v, v); });
                  }
                  const auto b_bar = solve(transposed, g[0].with_layout(layout), adjoint);
                  if (options.reports) options.reports->adjoint = adjoint.reports->forward;
                  Tensors cotangents{b_bar.without_layout()};
                  for (auto& each : pulled_back_to(used, A, u, -b_bar)) cotangents.push_back(std::move(each));
                  return cotangents;
                }});
  return u;
}

Tensor fixed_point(const TensorMap& g, const Tensor& start, const FixedPointOptions& options) {
  require_unknown("fixed_point", "the start", start);
  require(options.tolerance > 0 && options.adjoint_tolerance >= 0 && options.iterations > 0 && options.adjoint_iterations >= 0,
          "[fixed_point] tolerances and numbers of iterations are positive: {}, {}, {}, {}", options.tolerance,
          options.adjoint_tolerance, options.iterations, options.adjoint_iterations);
  const detail::KeepNoArrivals here;
  const auto argument = start.as_variable();
  const auto trace = detail::traced([&] { return Tensors{g(argument)}; });
  const auto used = detail::used_by(trace, {argument});
  require_group("fixed_point", used, start, options.communicator);
  auto u = start;
  auto next = trace.outputs[0];
  SolveReport report;
  for (bool done = false; !done;) {
    const Untaped scope;
    require(same_form(next, start), "[fixed_point] g(u) has the type and layout of u: {}, {}", next, start);
    const double size = global_norm(next, options.communicator), change = global_norm(next - u, options.communicator);
    report = {report.iterations + 1, change == 0 ? 0 : change / size};
    done = report.residual <= options.tolerance;
    require(done || (std::isfinite(report.residual) && report.iterations < options.iterations),
            "[fixed_point] no convergence: |g(u) - u| / |g(u)| is {} after {} of at most {} iterations, the tolerance is {}",
            report.residual, report.iterations, options.iterations, options.tolerance);
    u = next;
    if (!done) next = g(u);
  }
  if (options.reports) options.reports->forward = report;
  if (used.tensors.empty()) return u.as_constant().with_layout(start.layout());
  u = u.as_variable().with_layout(start.layout());
  if (!Tape::recording()) return u;

  // u = g(u, p):  lambda = (dg/du)^T lambda + u_bar,  p_bar = (dg/dp)^T lambda
  Tape::record({.name = "fixed_point",
                .communicates = used.communicates,
                .keeps_outputs = 1,
                .inputs = used.tensors,
                .outputs = {u},
                .vjp = [g, options, used = used.tensors, layout = start.layout()](const Replay& at, Inputs cotangents) {
                  const detail::KeepNoArrivals here;
                  const auto u = at.output(0).with_layout(layout), u_bar = cotangents[0].with_layout(layout);
                  auto adjoint = options;
                  adjoint.reports = options.reports ? std::make_shared<SolveReports>() : nullptr;
                  if (options.adjoint_tolerance > 0) adjoint.tolerance = options.adjoint_tolerance;
                  if (options.adjoint_iterations > 0) adjoint.iterations = options.adjoint_iterations;
                  const auto lambda =
                      fixed_point([g, u, u_bar](const Tensor& v) { return pulled_back(g, u, v) + u_bar; }, u_bar, adjoint);
                  if (options.reports) options.reports->adjoint = adjoint.reports->forward;
                  return pulled_back_to(used, g, u, lambda);
                }});
  return u;
}

}  // namespace mpigrad
