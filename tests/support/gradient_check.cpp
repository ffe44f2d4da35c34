#include "tests/support/gradient_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/random.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace mpigrad::testing {
namespace {

// x + t v, new variables.
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
    if (is_floating(y.dtype())) result.push_back(y);
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

// A direction nearly at right angles to the gradient says little, so the error is relative to what is typical, too.
double relative_error(double expected, double found, double typical) {
  const double error = std::abs(expected - found) / std::max({std::abs(expected), std::abs(found), 0.05 * typical, 1e-9});
  return std::isfinite(error) ? error : 1e300;
}

// One value, <a, b> in ops.
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

double inner_product(const Tensors& a, const Tensors& b) {
  require(a.size() == b.size(), "[inner_product] {} and {} tensors", a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i].shape() == b[i].shape(), "[inner_product] shapes differ: {} and {}", a[i], b[i]);
    const auto x = a[i].to_vector(), y = b[i].to_vector();
    for (std::size_t j = 0; j < x.size(); ++j) sum += x[j] * y[j];
  }
  return sum;
}

Tensors random_like(const Tensors& like, std::uint64_t seed) {
  Tensors result;
  for (std::size_t i = 0; i < like.size(); ++i) {
    const Philox random{.key = seed, .stream = i};
    std::vector<double> values(static_cast<std::size_t>(like[i].elements()));
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = 2 * random.uniform(j) - 1;
    result.push_back(from_vector(like[i].shape(), values, like[i].dtype()));
  }
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return 1e300;
  const auto x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double error = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
    largest = std::max(largest, std::isfinite(error) ? error : 1e300);
  }
  return largest;
}

double linearity_error(const TensorFunction& f, const Tensors& inputs, std::uint64_t seed) {
  const Tensors x = moved(inputs, 0, inputs), y = floating(f(x)), u = random_like(y, seed);
  const double forward = inner_product(y, u), adjoint = inner_product(x, gradients(f, x, u));
  return relative_error(forward, adjoint, norm(y) * norm(u) / std::sqrt(static_cast<double>(y[0].elements() + 1)));
}

GradientReport check_gradients(const TensorFunction& f, const Tensors& inputs, const GradientCheckOptions& options) {
  GradientReport report;
  for (const auto& x : inputs) require(x.dtype() == DType::float64, "[check_gradients] inputs are float64: {}", x);
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

}  // namespace mpigrad::testing
