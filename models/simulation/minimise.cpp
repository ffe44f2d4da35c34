#include "models/simulation/minimise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "comm/collectives/collectives.h"
#include "models/simulation/global_dot.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

// a + c b
Tensors moved(const Tensors& a, double c, const Tensors& b) {
  Tensors sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + c * b[i]);
  return sum;
}
Tensors scaled(double c, const Tensors& a) {
  Tensors product;
  for (const auto& each : a) product.push_back(c * each);
  return product;
}
Tensors variables(const Tensors& x) {
  Tensors fresh;
  for (const auto& each : x) fresh.push_back(each.as_variable().with_layout(each.layout()));
  return fresh;
}

// Gradients of plain parameters that differ among ranks would let the ranks drift apart.
void require_equal(const char* what, const Tensors& gradient, const Communicator& comm) {
  if (!comm || comm.size() == 1) return;
  double square = 0;
  for (const auto& g : gradient)
    if (!g.layout()) square += global_dot(g, g);
  std::array<double, 2> ends{square, -square};
  comm.transport().allreduce(ends.data(), ends.data(), 2, DType::float64, CombineOp::max);
  require(ends[0] == -ends[1] || !std::isfinite(square),
          "[{}] the gradient of a plain parameter differs from rank to rank; the objective uses replicate(x, comm)", what);
}

void require_parameters(const char* what, const Tensors& x) {
  require(!x.empty(), "[{}] there are no parameters", what);
  for (const auto& each : x) require(is_floating(each.dtype()), "[{}] parameters are floating-point: {}", what, each);
}

// Value and gradient of an objective at `step` along a direction.
struct Point {
  double step = 0, value = 0, derivative = 0;
  Tensors x{}, gradient{};
};

class Search {
 public:
  using Evaluate = std::function<Point(double step)>;
  Search(const LbfgsOptions& options, const Point& start, Evaluate evaluate)
      : options_(options), start_(start), evaluate_(std::move(evaluate)),
        rounding_(4 * std::numeric_limits<double>::epsilon() * std::abs(start.value)), left_(options.search) {}

  // Nocedal and Wright, algorithm 3.5; none if no step lowers the value.
  std::optional<Point> run(double step) {
    Point before = start_;
    while (left_ > 0) {
      auto now = at(step);
      if (!falls_enough(now) || (before.step > 0 && now.value > before.value + rounding_)) return zoom(before, now);
      if (is_flat(now)) return now;
      if (now.derivative >= 0) return zoom(now, before);
      before = std::move(now);
      step *= 2;
    }
    return lower(before);
  }

 private:
  Point at(double step) {
    --left_;
    return evaluate_(step);
  }
  bool falls_enough(const Point& p) const {
    return p.value <= start_.value + options_.decrease * p.step * start_.derivative + rounding_;
  }
  bool is_flat(const Point& p) const { return std::abs(p.derivative) <= -options_.curvature * start_.derivative; }
  std::optional<Point> lower(const Point& p) const { return p.step > 0 ? std::optional(p) : std::nullopt; }

  // The minimum of the cubic through values and derivatives at both ends, or their middle where that is too close to an end.
  static double between(const Point& a, const Point& b) {
    const double width = b.step - a.step;
    const double d = a.derivative + b.derivative - 3 * (a.value - b.value) / (a.step - b.step);
    const double root = std::copysign(std::sqrt(d * d - a.derivative * b.derivative), width);
    const double step = b.step - width * (b.derivative + root - d) / (b.derivative - a.derivative + 2 * root);
    const double part = (step - a.step) / width;
    return part >= 0.1 && part <= 0.9 ? step : a.step + width / 2;  // NaN: the middle
  }
  // Algorithm 3.6
  std::optional<Point> zoom(Point low, Point high) {
    while (left_ > 0) {
      auto now = at(between(low, high));
      if (!falls_enough(now) || now.value > low.value + rounding_) {
        high = std::move(now);
        continue;
      }
      if (is_flat(now)) return now;
      if (now.derivative * (high.step - low.step) >= 0) high = std::move(low);
      low = std::move(now);
    }
    return lower(low);
  }

  const LbfgsOptions& options_;
  const Point& start_;
  Evaluate evaluate_;
  double rounding_;  // of values
  int left_;
};

// Pairs of steps and changes of the gradient; the product of the approximate inverse Hessian and a vector (algorithm 7.4).
struct Pairs {
  struct Pair {
    Tensors s, y;
    double sy = 0;
  };
  std::deque<Pair> kept;

  Tensors times(Tensors q) const {
    std::vector<double> along(kept.size());
    for (std::size_t i = kept.size(); i-- > 0;) {
      along[i] = global_dot(kept[i].s, q) / kept[i].sy;
      q = moved(q, -along[i], kept[i].y);
    }
    if (!kept.empty()) q = scaled(kept.back().sy / global_dot(kept.back().y, kept.back().y), q);
    for (std::size_t i = 0; i < kept.size(); ++i) q = moved(q, along[i] - global_dot(kept[i].y, q) / kept[i].sy, kept[i].s);
    return q;
  }
};

// Ends where `after` says so, or the tolerance or the number of iterations is reached.
bool ends(Minimum& at, double target, std::int64_t iterations, const AfterIteration& after) {
  at.converged = at.gradient_norm <= target;
  if (at.converged) at.reason = "the gradient is within the tolerance";
  if (at.iterations > 0 && after && !after(at) && !at.converged) at.reason = "stopped by the caller";
  if (at.reason.empty() && at.iterations >= iterations) at.reason = fmt::format("{} iterations are over", iterations);
  return !at.reason.empty();
}

}  // namespace

Minimum lbfgs(const std::function<Tensor(const Tensors&)>& objective, const Tensors& x, const LbfgsOptions& options) {
  require_parameters("lbfgs", x);
  require(options.pairs > 0 && options.iterations >= 0 && options.tolerance >= 0 && options.first_step > 0 &&
              options.search > 0 && 0 < options.decrease && options.decrease < options.curvature && options.curvature < 1,
          "[lbfgs] pairs, first_step and search are positive, and 0 < decrease < curvature < 1: {}, {}, {}, {}, {}",
          options.pairs, options.first_step, options.search, options.decrease, options.curvature);
  const Untaped scope;
  Minimum result;
  const auto evaluate = [&](double step, const Tensors& at, const Tensors& direction) {
    Point point{.step = step, .x = variables(at)};
    Tape tape;
    const auto share = objective(point.x);
    point.gradient = tape.gradient(share, point.x);
    point.value = options.communicator ? total(share, options.communicator) : total(share);
    require_equal("lbfgs", point.gradient, options.communicator);
    point.derivative = direction.empty() ? 0 : global_dot(point.gradient, direction);
    if (!std::isfinite(point.value) || std::isnan(point.derivative)) point.value = std::numeric_limits<double>::infinity();
    ++result.evaluations;
    return point;
  };
  auto now = evaluate(0, x, {});
  const auto note = [&] {
    result.x = now.x;
    result.value = now.value;
    result.gradient_norm = global_norm(now.gradient);
  };
  note();
  require(std::isfinite(result.value) && std::isfinite(result.gradient_norm),
          "[lbfgs] at the start the value is {} and |gradient| is {}", result.value, result.gradient_norm);
  const double target = options.tolerance * result.gradient_norm;
  Pairs pairs;
  while (!ends(result, target, options.iterations, options.after)) {
    auto direction = scaled(-1, pairs.times(now.gradient));
    now.derivative = global_dot(now.gradient, direction);
    now.step = 0;
    const double first = pairs.kept.empty() ? options.first_step / global_norm(direction) : 1;
    auto next =
        Search(options, now, [&](double step) { return evaluate(step, moved(now.x, step, direction), direction); }).run(first);
    if (!next) {
      if (pairs.kept.empty()) {
        result.reason = "no lower value along the gradient: rounding";
        break;
      }
      pairs.kept.clear();  // try the gradient itself
      continue;
    }
    auto s = moved(next->x, -1, now.x), y = moved(next->gradient, -1, now.gradient);
    const double sy = global_dot(s, y);
    if (sy > 0) pairs.kept.push_back({std::move(s), std::move(y), sy});
    if (pairs.kept.size() > static_cast<std::size_t>(options.pairs)) pairs.kept.pop_front();
    now = std::move(*next);
    ++result.iterations;
    note();
  }
  return result;
}

Minimum gauss_newton(const TensorFunction& residual, const Tensors& x, const GaussNewtonOptions& options) {
  require_parameters("gauss_newton", x);
  require(options.iterations >= 0 && options.tolerance >= 0 && options.damping >= 0 && options.inner_tolerance > 0 &&
              options.inner_iterations > 0,
          "[gauss_newton] damping is not negative, inner_tolerance and inner_iterations are positive: {}, {}, {}",
          options.damping, options.inner_tolerance, options.inner_iterations);
  const Untaped scope;
  Minimum result{.x = variables(x)};
  const auto value_of = [&](const Tensors& r) { return global_dot(r, r, options.communicator) / 2; };
  const auto counted = [&](const Tensors& at) {
    ++result.evaluations;
    return residual(at);
  };
  // J^T w; w is the residual itself if it is empty, and then `value` is set.
  const auto transposed = [&](Tensors w, double* value) {
    Tape tape;
    const auto r = counted(result.x);
    if (value) *value = value_of(r), w = r;
    auto product = tape.vjp(r, std::move(w), result.x);
    require_equal("gauss_newton", product, options.communicator);
    return product;
  };
  double target = 0;
  while (true) {
    auto gradient = transposed({}, &result.value);
    result.gradient_norm = global_norm(gradient);
    if (result.iterations == 0) {
      require(std::isfinite(result.value) && std::isfinite(result.gradient_norm),
              "[gauss_newton] at the start the value is {} and |gradient| is {}", result.value, result.gradient_norm);
      target = options.tolerance * result.gradient_norm;
    }
    if (ends(result, target, options.iterations, options.after)) return result;

    // (J^T J + damping) step = -J^T r, by conjugate gradients from 0.
    auto rest = scaled(-1, gradient), p = rest, step = scaled(0, rest);
    double square = global_dot(rest, rest);
    const double enough = options.inner_tolerance * options.inner_tolerance * square;
    for (std::int64_t i = 0; i < options.inner_iterations && square > enough; ++i) {
      const auto along = jvp([&](const Tensors& at) { return counted(at); }, result.x, p);
      auto q = transposed(along, nullptr);
      if (options.damping > 0) q = moved(q, options.damping, p);
      const double curvature = global_dot(p, q);
      if (!(curvature > 0)) break;
      step = moved(step, square / curvature, p);
      rest = moved(rest, -square / curvature, q);
      const double next = global_dot(rest, rest);
      p = moved(rest, next / square, p);
      square = next;
    }

    const double derivative = global_dot(gradient, step);
    bool lower = false;
    for (double length = 1; derivative < 0 && !lower && length > 1e-10; length /= 2) {
      auto next = variables(moved(result.x, length, step));
      lower = value_of(counted(next)) <= result.value + 1e-4 * length * derivative;
      if (lower) result.x = std::move(next);
    }
    if (!lower) {
      result.reason = "no lower value along the step: rounding";
      return result;
    }
    ++result.iterations;
  }
}

}  // namespace mpigrad
