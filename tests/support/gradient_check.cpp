#include "tests/support/gradient_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::testing {
namespace {

// x + t v, as new variables.
Tensors moved(const Tensors& x, double t, const Tensors& v) {
  Tensors result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto values = x[i].to_vector();
    const auto direction = v[i].to_vector();
    for (std::size_t j = 0; j < values.size(); ++j) values[j] += t * direction[j];
    result.push_back(from_vector(x[i].shape(), values, x[i].dtype()));
  }
  return result;
}

Tensors floating(const Tensors& outputs) {
  Tensors result;
  for (const auto& y : outputs)
    if (is_differentiable(y.dtype())) result.push_back(y);
  return result;
}

double norm(const Tensors& x) { return std::sqrt(inner_product(x, x)); }

// d/dt g(t) at 0 from central differences at h, h/2 and h/4, extrapolated to h^6.
double derivative(const std::function<double(double)>& g, double h) {
  std::array<double, 3> d{};
  for (std::size_t i = 0; i < 3; ++i, h /= 2) d[i] = (g(h) - g(-h)) / (2 * h);
  const double first = (4 * d[1] - d[0]) / 3, second = (4 * d[2] - d[1]) / 3;
  return (16 * second - first) / 15;
}

// A direction nearly orthogonal to the gradient says little, so the error is also relative to a typical derivative.
double relative_error(double expected, double found, double typical) {
  const double error = std::abs(expected - found) / std::max({std::abs(expected), std::abs(found), 0.05 * typical, 1e-9});
  return std::isfinite(error) ? error : 1e300;
}

// <a, b>, computed by ops; one value.
Tensor dot_of(const Tensors& a, const Tensors& b) {
  Tensor total;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto part = dot(a[i], b[i]);
    total = total ? total + part : part;
  }
  return total;
}

Tensors joined(Tensors a, const Tensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Tensors gradients(const TensorFunction& f, const Tensors& x, const Tensors& u) {
  Tape tape;
  return tape.vjp(floating(f(x)), u, x);
}

void note(GradientReport& report, const char* which, double error, double expected, double found, double tolerance,
          double& largest) {
  largest = std::max(largest, error);
  if (error <= tolerance) return;
  report.passed = false;
  report.message +=
      fmt::format("{} order: differences give {:.12g}, the tape {:.12g}, relative error {:.1e}; ", which, expected, found, error);
}

}  // namespace

double linearity_error(const TensorFunction& f, const Tensors& inputs, std::uint64_t seed) {
  const Tensors x = moved(inputs, 0, inputs), y = floating(f(x)), u = random_like(y, seed);
  const double forward = inner_product(y, u), adjoint = inner_product(x, gradients(f, x, u));
  return relative_error(forward, adjoint, norm(y) * norm(u) / std::sqrt(static_cast<double>(y[0].elements() + 1)));
}

GradientReport check_gradients(const TensorFunction& f, const Tensors& inputs, const GradientCheckOptions& options) {
  GradientReport report;
  for (const auto& x : inputs)
    require(real_type(x.dtype()) == DType::float64, "[check_gradients] inputs are float64 or complex128: {}", x);
  const Tensors outputs = floating(f(moved(inputs, 0, inputs)));
  require(!outputs.empty(), "[check_gradients] the function returns no floating-point tensor");

  for (int k = 0; k < options.directions; ++k) {
    const std::uint64_t seed = options.seed * 1000 + static_cast<std::uint64_t>(k) * 10;
    const Tensors x = moved(inputs, 0, inputs), u = random_like(outputs, seed), v = random_like(inputs, seed + 1),
                  w = random_like(inputs, seed + 2), q = random_like(outputs, seed + 3);

    const Tensors g = gradients(f, x, u);
    const double expected = derivative([&](double t) { return inner_product(u, floating(f(moved(x, t, v)))); }, options.step);
    const double found = inner_product(g, v);
    double elements = 1;
    for (const auto& part : x) elements += static_cast<double>(part.elements());
    note(report, "first", relative_error(expected, found, norm(g) * norm(v) / std::sqrt(elements)), expected, found,
         options.tolerance, report.first);
    if (!options.second_order) continue;

    const double expected2 =
        derivative([&](double t) { return inner_product(gradients(f, moved(x, t, v), moved(u, t, q)), w); }, options.step);
    Tensors second;
    {
      Tape tape;
      const Tensors inner = tape.vjp(floating(f(x)), u, x, Record::yes);
      const Tensor objective = dot_of(inner, w);
      for (const auto& entry : tape.entries()) report.entries.emplace(entry.name);
      second = tape.gradient(objective, joined(x, u), Record::yes);
      for (const auto& entry : tape.entries()) report.entries.emplace(entry.name);
    }
    const Tensors directions = joined(v, q);
    const double found2 = inner_product(second, directions);
    note(report, "second", relative_error(expected2, found2, norm(second) * norm(directions) / std::sqrt(elements)), expected2,
         found2, options.tolerance, report.second);

    Tensors nested;
    {
      Tape outer;
      Tensors inner_gradients;
      {
        Tape inner;
        inner_gradients = inner.vjp(floating(f(x)), u, x);
      }
      nested = outer.gradient(dot_of(inner_gradients, w), joined(x, u));
    }
    double worst = 0;
    for (std::size_t i = 0; i < nested.size(); ++i) worst = std::max(worst, largest_difference(nested[i], second[i]));
    report.nested = std::max(report.nested, worst);
    if (worst > 1e-10) {
      report.passed = false;
      report.message += fmt::format("a tape around a tape differs from Record::yes by {:.1e}; ", worst);
    }
  }
  if (report.passed) report.message = fmt::format("first {:.1e}, second {:.1e}", report.first, report.second);
  return report;
}

void require_close(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance) {
  require(found.shape() == expected.shape(), "[test] {}: {} instead of {}", what, found, expected);
  const double difference = largest_difference(found, expected);
  require(difference <= tolerance, "[test] {} is off by {:.1e}", what, difference);
}

}  // namespace mpigrad::testing
