#include "comm/check/taylor_test.h"

#include <algorithm>
#include <cmath>

namespace mpigrad {
namespace {

using detail::moved, detail::Stacked;

Tensors magnitudes(const Tensors& x) {
  Tensors result;
  for (const auto& each : x) {
    auto values = each.without_layout().to_vector();
    for (auto& value : values) value = std::abs(value);
    result.push_back(from_vector(each.shape(), values, DType::float64));
  }
  return result;
}

TaylorRemainder remainder_of(std::vector<double> values, const std::vector<double>& rounding) {
  TaylorRemainder result{.value = std::move(values), .rate = {}, .exact = true};
  for (std::size_t i = 0; i + 1 < result.value.size(); ++i) {
    const double now = result.value[i], next = result.value[i + 1];
    // Written with `!`, because a NaN must not count as exact.
    const bool seen = !(now <= rounding[i]) && !(next <= rounding[i + 1]);
    result.rate.push_back(seen ? std::optional(std::log2(now / next)) : std::nullopt);
    result.exact = result.exact && !seen;
  }
  return result;
}

// The verdict of the last rates: the deciding rate, and whether it is steady, as for a power of h. A remainder of two powers that
// cancel at some h has a high rate there, and different rates next to it. Rates near the rounding error are not used if there are
// two others.
struct Verdict {
  double rate = 0;
  bool steady = true;
};
Verdict verdict_of(const TaylorRemainder& remainder, const std::vector<double>& rounding) {
  std::vector<double> seen, clear;
  for (std::size_t i = 0; i < remainder.rate.size(); ++i) {
    if (!remainder.rate[i]) continue;
    seen.push_back(*remainder.rate[i]);
    if (remainder.value[i + 1] > 32 * rounding[i + 1]) clear.push_back(*remainder.rate[i]);
  }
  const auto& rates = clear.size() >= 2 ? clear : seen;
  if (rates.size() < 2) return {rates.back(), true};
  const double last = rates.back(), before = rates[rates.size() - 2];
  return {std::min(last, before), std::abs(last - before) < 0.5};
}

}  // namespace

TaylorReport taylor_test(const TensorFunction& function, const Tensors& at, const Communicator& comm,
                         const TaylorOptions& options) {
  require(options.halvings >= 1 && options.halvings <= 40, "[taylor_test] halvings is from 1 to 40, not {}", options.halvings);
  require(options.step > 0 && std::isfinite(options.step), "[taylor_test] step is above 0, not {}", options.step);
  const auto f = detail::differentiable_outputs(function);
  const Stacked inputs(comm, detail::floating_inputs("taylor_test", at), options.inputs);
  const Tensors x = moved(at, 0, at), v = inputs.random(options.seed, 3), y = f(x);
  const Stacked outputs(comm, y, options.outputs), output_duals(comm, y, options.outputs, Stacked::Role::cotangent);
  const Tensors u = options.weights.empty() ? output_duals.random(options.seed, 2) : options.weights;
  // Decided by all ranks together, because the others would wait for a rank that leaves.
  bool fit = u.size() == y.size();
  for (std::size_t i = 0; fit && i < y.size(); ++i) fit = u[i] && u[i].type() == y[i].type();
  require(detail::over_ranks(comm, fit ? 0 : 1) == 0,
          "[taylor_test] weights have the outputs' number and types; here {} weights for {} outputs", u.size(), y.size());

  double slope = 0, curvature = 0, scale = 0;
  {
    Tape tape;
    const auto g = tape.vjp(f(x), u, x, options.second ? Record::yes : Record::no);
    slope = inputs.inner(g, v);
    scale = inputs.inner(magnitudes(g), magnitudes(x));  // the effect of rounding x on J
    if (options.second) curvature = inputs.inner(tape.vjp(g, v, x), v);
  }

  // J is known to some units in the last place of the terms that are added up in it, and of the effect of rounding x.
  const double here = outputs.inner(y, u), epsilon = detail::coarsest_epsilon(comm, at, y),
               size = outputs.inner(magnitudes(y), magnitudes(u));
  TaylorReport report;
  std::vector<double> r0, r1, r2, rounding;
  double h = options.step;
  for (int i = 0; i <= options.halvings; ++i, h /= 2) {
    const auto there = f(moved(x, h, v));
    const double change = outputs.inner(there, u) - here;
    rounding.push_back(16 * epsilon *
                       (std::max(size, outputs.inner(magnitudes(there), magnitudes(u))) + scale + h * std::abs(slope)));
    report.steps.push_back(h);
    r0.push_back(std::abs(change));
    r1.push_back(std::abs(change - h * slope));
    r2.push_back(std::abs(change - h * slope - h * h / 2 * curvature));
  }
  // A remainder below the rounding error means something only where J itself changes by much more.
  const bool visible = std::max(r0.front(), options.step * std::abs(slope)) > 100 * rounding.front();
  report.remainders = {remainder_of(std::move(r0), rounding), remainder_of(std::move(r1), rounding)};
  if (options.second) report.remainders.push_back(remainder_of(std::move(r2), rounding));
  if (!visible) {
    report.passed = false;
    report.message = fmt::format(
        "no rate can be seen: J changes by {:.1e} along v, its rounding error is {:.1e}; take another x, larger steps or a finer "
        "type",
        report.remainders[0].value.front(), rounding.front());
    return report;
  }

  for (std::size_t order = 1; order < report.remainders.size(); ++order) {
    const auto& remainder = report.remainders[order];
    const double expected = static_cast<double>(order) + 1;
    if (remainder.exact) continue;
    const auto [rate, steady] = verdict_of(remainder, rounding);
    if (rate >= expected - 0.1 && steady) continue;
    report.passed = false;
    report.message +=
        fmt::format("R{} falls as h^{:.2f}{} instead of h^{}: {}; ", order, rate, steady ? "" : ", unsteadily,", order + 1,
                    order == 1 ? "this is not the gradient of f, or x is near a kink"
                               : "this is not the Hessian of f, or R1 is wrong already");
  }
  if (report.message.ends_with("; ")) report.message.resize(report.message.size() - 2);
  return report;
}

void require_taylor(const std::string& name, const TensorFunction& f, const Tensors& x, const Communicator& comm,
                    const TaylorOptions& options) {
  const auto report = taylor_test(f, x, comm, options);
  require(report.passed, "[taylor] {} on {} ranks: {}", name, comm.size(), report.message);
}

std::string to_text(const TaylorReport& report) {
  std::string text = fmt::format("{:>9}", "h");
  for (std::size_t order = 0; order < report.remainders.size(); ++order)
    text += fmt::format("{:>11}  rate", fmt::format("R{}", order));
  text += "\n";
  for (std::size_t i = 0; i < report.steps.size(); ++i) {
    text += fmt::format("{:9.2e}", report.steps[i]);
    for (const auto& remainder : report.remainders) {
      const auto rate = i == 0 ? std::string() : remainder.rate[i - 1] ? fmt::format("{:.2f}", *remainder.rate[i - 1]) : "exact";
      text += fmt::format("{:11.2e} {:>5}", remainder.value[i], rate);
    }
    text = text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace mpigrad
