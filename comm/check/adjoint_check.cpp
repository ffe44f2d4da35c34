#include "comm/check/adjoint_check.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mpigrad {
namespace {

using detail::moved, detail::Stacked;

class Checker {
 public:
  Checker(const Communicator& comm, const TensorFunction& f, const Tensors& inputs, const AdjointOptions& options)
      : comm_(comm), f_(detail::differentiable_outputs(f)), options_(options),
        like_(detail::floating_inputs("adjoint_check", inputs)), inputs_(comm, inputs, options.inputs),
        input_duals_(comm, inputs, options.inputs, Stacked::Role::cotangent) {}

  AdjointReport run() {
    check();
    for (auto* text : {&report_.message, &report_.kink})
      if (text->ends_with("; ")) text->resize(text->size() - 2);
    return report_;
  }

 private:
  // Tests that f is additive, odd and 0 at 0, to rounding; the same result on all ranks. (max(0, x) is additive where no sign
  // changes, but not odd.)
  bool is_linear() {
    const Tensors a = inputs_.random(options_.seed, 6), b = inputs_.random(options_.seed, 7), f_a = f_(a);
    const double tolerance = std::max(options_.tolerance, 16 * detail::coarsest_epsilon(comm_, like_, f_a));
    double worst = 0;
    const auto compare = [&](const Tensors& found, const Tensors& expected) {
      for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, largest_difference(found[i], expected[i]));
    };
    compare(f_(moved(a, 1, b)), moved(f_a, 1, f_(b)));
    compare(f_(moved(a, -2, a)), moved(f_a, -2, f_a));
    compare(f_(moved(a, -1, a)), moved(f_a, -1, f_a));
    return detail::over_ranks(comm_, worst, CombineOp::max) <= tolerance;
  }

  void check() {
    const bool linear = report_.linear = options_.linear ? *options_.linear : is_linear();
    const Tensors x = linear ? inputs_.random(options_.seed, 1) : moved(like_, 0, like_);
    const Tensors y = f_(x);
    const Stacked outputs(comm_, y, options_.outputs), output_duals(comm_, y, options_.outputs, Stacked::Role::cotangent);
    compare_ranks("output", y, outputs);
    epsilon_ = detail::coarsest_epsilon(comm_, like_, y);
    const Tensors u = output_duals.random(options_.seed, 2), v = inputs_.random(options_.seed, 3),
                  q = output_duals.random(options_.seed, 4);
    const Tensors g = gradient(x, u);
    compare_ranks("cotangent of input", g, input_duals_);

    const double typical = typical_of(g, v);
    if (linear) {
      note("first order", report_.first, outputs.inner(y, u), inputs_.inner(x, g), typical, options_.tolerance);
      report_.exact = report_.first;
    } else {
      const double found = inputs_.inner(g, v);
      if (options_.second)
        note("<J v, u> and <v, J^T u>", report_.exact, outputs.inner(jvp(f_, x, v), u), found, typical, options_.tolerance);
      note_derivative(
          "first order", report_.first, [&](double t) { return outputs.inner(f_(moved(x, t, v)), u); }, found, typical);
      if (on_kink_) return;  // without a first derivative there is no second one
    }
    if (!options_.second) return;

    // The second order is checked through Record::yes, and by a tape around a tape.
    for (const bool nested : {false, true}) {
      Tensors second;
      const auto differentiate = [&](Tape& tape, const Tensors& inner_gradient) {
        Tensors with_respect_to = u;
        if (!linear) with_respect_to.insert(with_respect_to.end(), x.begin(), x.end());
        second = tape.vjp(inner_gradient, v, with_respect_to, nested ? Record::no : Record::yes);
      };
      Tape tape;
      if (nested) {
        Tensors inner_gradient;
        {
          Tape inside;
          inner_gradient = inside.vjp(f_(x), u, x);
        }
        for (const auto& entry : tape.entries()) report_.entries.emplace(entry.name);
        differentiate(tape, inner_gradient);
      } else {
        differentiate(tape, tape.vjp(f_(x), u, x, Record::yes));
      }
      const char* how = nested ? "second order (nested tapes)" : "second order";
      if (linear) {
        const Tensors w = f_(v);
        double worst = 0;
        for (std::size_t i = 0; i < w.size(); ++i) worst = std::max(worst, largest_difference(second[i], w[i]));
        worst = detail::over_ranks(comm_, worst, CombineOp::max);
        report_.second = std::max(report_.second, worst);
        if (!(worst <= options_.tolerance)) failed("{} is off by {:.1e}; ", how, worst);
        continue;
      }
      const Tensors by_u(second.begin(), second.begin() + static_cast<std::ptrdiff_t>(u.size()));
      const Tensors by_x(second.begin() + static_cast<std::ptrdiff_t>(u.size()), second.end());
      const Tensors w = inputs_.random(options_.seed, 5);
      const double exact = outputs.inner(by_u, q) + inputs_.inner(by_x, w);
      note_derivative(
          how, report_.second, [&](double t) { return inputs_.inner(gradient(moved(x, t, w), moved(u, t, q)), v); }, exact,
          typical_of(by_x, w));
      if (on_kink_) return;
    }
  }

  Tensors gradient(const Tensors& x, const Tensors& u) {
    Tape tape;
    const Tensors y = f_(x);
    for (const auto& entry : tape.entries()) report_.entries.emplace(entry.name);
    return tape.vjp(y, u, x);
  }

  // The smallest denominator of relative errors, because a random direction may be nearly orthogonal to the gradient.
  double typical_of(const Tensors& g, const Tensors& v) const {
    return 0.05 * inputs_.norm(g) * inputs_.norm(v) / std::sqrt(inputs_.elements() + 1);
  }
  static double error_of(double expected, double found, double typical) {
    const double error = std::abs(expected - found) / std::max({std::abs(expected), std::abs(found), typical, 1e-9});
    return std::isfinite(error) ? error : 1e300;
  }

  // dg/dt at 0 by central differences of h, h/2 and h/4, extrapolated to h = 0 (Richardson).
  static double derivative(const std::function<double(double)>& g, double h) {
    std::array<double, 3> d{};
    for (std::size_t i = 0; i < 3; ++i, h /= 2) d[i] = (g(h) - g(-h)) / (2 * h);
    const double first = (4 * d[1] - d[0]) / 3, second = (4 * d[2] - d[1]) / 3;
    return (16 * second - first) / 15;
  }

  void compare_ranks(const char* what, const Tensors& x, const Stacked& space) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double largest = space.drift(i, x[i]);
      if (largest > options_.tolerance) failed("{} {} differs between ranks by {:.1e}; ", what, i, largest);
    }
  }

  template <class... Arguments>
  void failed(fmt::format_string<Arguments...> format, const Arguments&... arguments) {
    report_.passed = false;
    report_.message += fmt::vformat(format, fmt::make_format_args(arguments...));
  }

  void note(const char* order, double& worst, double expected, double found, double typical, double tolerance) {
    const double error = error_of(expected, found, typical);
    worst = std::max(worst, error);
    if (!(error <= tolerance)) failed("{} is off by {:.1e}: {} and {}; ", order, error, expected, found);
  }

  // Compares `found` with finite differences of g. Where the two sides of the tape agree, a wrong difference may also mean that g
  // has a kink near x, or at x. Near x: smaller steps, which end before the kink, agree. At x: no steps agree, and the two
  // one-sided derivatives differ. Steps so small that rounding may make them agree with any value prove nothing.
  void note_derivative(const char* order, double& worst, const std::function<double(double)>& g, double found, double typical) {
    const double tolerance = options_.difference_tolerance;
    const double expected = derivative(g, options_.step), error = error_of(expected, found, typical);
    const auto lost = [&](double h) {  // relative rounding error of a difference
      return 8 * epsilon_ * std::max(std::abs(g(h)), std::abs(g(-h))) / h / std::max({std::abs(found), typical, 1e-9});
    };
    if (error > tolerance && report_.passed) {
      for (const double h : {options_.step / 16, options_.step / 256, options_.step / 4096}) {
        if (lost(h / 4) > tolerance) break;
        const double closer = error_of(derivative(g, h), found, typical);
        if (closer > tolerance) continue;
        worst = std::max(worst, closer);
        report_.kink +=
            fmt::format("{}: a kink or a sharp bend lies within {:.0e} of x; differences with steps of {:.0e} agree to {:.1e}; ",
                        order, options_.step, h, closer);
        return;
      }
      const auto one_sided = [&](double h) { return 2 * (g(h / 2) - g(0)) / h * 2 - (g(h) - g(0)) / h; };  // of order h^2
      const double h = options_.step / 256, left = one_sided(-h), right = one_sided(h);
      const bool seen = lost(h / 4) < 1e-3;
      const bool bent = error_of(left, right, typical) > 1e-3 && error_of(right, one_sided(h / 2), typical) < 1e-3;
      // If the derivative jumps, differences grow as the step falls.
      const bool jumps = std::abs(derivative(g, h)) > 64 * std::max(std::abs(expected), typical);
      if (seen && (bent || jumps)) {
        on_kink_ = true;
        worst = std::max(worst, error);
        report_.kink += fmt::format("{}: x lies on a kink; ", order);
        if (bent)
          failed(
              "{}: x lies on a kink, with the derivatives {} on its left, {} on its right and {} by the vjp: check at another "
              "x; ",
              order, left, right, found);
        else failed("{}: x lies on a kink, where the derivative jumps: check at another x; ", order);
        return;
      }
    }
    note(order, worst, expected, found, typical, tolerance);
  }

  const Communicator& comm_;
  TensorFunction f_;
  const AdjointOptions& options_;
  Tensors like_;
  Stacked inputs_, input_duals_;
  AdjointReport report_;
  bool on_kink_ = false;
  double epsilon_ = 0;
};

}  // namespace

AdjointReport adjoint_check(const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                            const AdjointOptions& options) {
  return Checker(communicator, f, inputs, options).run();
}

void require_adjoint(const std::string& name, const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                     const AdjointOptions& options) {
  const auto report = adjoint_check(f, inputs, communicator, options);
  require(report.passed, "[adjoint] {} on {} ranks: {}", name, communicator.size(), report.message);
}

}  // namespace mpigrad
