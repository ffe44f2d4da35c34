#include "comm/adjoint_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/spatial/grid.h"
#include "framework/tensor/random.h"

namespace mpigrad {
namespace {

enum class Role : std::uint8_t { value, cotangent };

// How the ranks hold a tensor.
struct Place {
  std::uint64_t key = 0;  // equal on ranks that hold the same
  bool counts = true;     // whether this rank's part enters an inner product
  Communicator group;     // the ranks that hold the same, or none
};

Place place(const Communicator& comm, const Tensor& x, Across across, Role role) {
  Place result;
  if (!x.layout()) {
    if (across == Across::varying) return {.key = static_cast<std::uint64_t>(comm.rank()) + 1, .counts = true, .group = {}};
    return {.key = 0, .counts = comm.rank() == 0, .group = comm};
  }
  const auto& layout = *x.layout();
  const auto at = layout.grid->coordinates(layout.grid->rank);
  std::vector<int> axes;
  for (std::size_t a = 0; a < at.size(); ++a) {
    const auto placement = layout.axes[a].placement;
    result.counts = result.counts && (placement != Placement::same || at[a] == 0);
    const bool same = placement == Placement::same || (placement == Placement::share && role == Role::cotangent);
    if (same) axes.push_back(static_cast<int>(a));
    else result.key = result.key * 1000 + static_cast<std::uint64_t>(at[a]) + 1;
  }
  result.group = grid_of(layout).along(axes);
  return result;
}

double summed(const Communicator& comm, double value, CombineOp op = CombineOp::sum) {
  comm.transport().allreduce(&value, &value, 1, DType::float64, op);
  return value;
}

// Whether all ranks of the group hold the first one's elements; 0 or the largest relative difference.
double drift(const Place& at, const Tensor& x) {
  if (!at.group || at.group.size() == 1) return 0;
  auto values = x.to_vector();
  auto first = values;
  at.group.transport().bcast(first.data(), static_cast<std::int64_t>(first.size()), DType::float64, 0);
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(values[i] == first[i])) largest = std::max(largest, std::abs(values[i] - first[i]) / std::max(1.0, std::abs(first[i])));
  return largest;
}

class Checker {
 public:
  Checker(const Communicator& comm, const TensorFunction& f, const Tensors& inputs, const AdjointOptions& options)
      : comm_(comm), options_(options) {
    for (const auto& x : inputs) require(x && is_floating(x.dtype()), "[adjoint_check] inputs are floating-point tensors: {}", x);
    // What carries no derivative is left out.
    f_ = [&f](const Tensors& x) {
      Tensors y = f(x);
      std::erase_if(y, [](const Tensor& part) { return !part || !is_floating(part.dtype()); });
      return y;
    };
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs_.push_back(place(comm, inputs[i], across(options.inputs, i), Role::value));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      input_duals_.push_back(place(comm, inputs[i], across(options.inputs, i), Role::cotangent));
    like_ = inputs;
  }

  AdjointReport run() {
    const Tensors x = options_.linear ? random(like_, inputs_, 1) : moved(like_, 0, like_);
    const Tensors y = f_(x);
    for (std::size_t i = 0; i < y.size(); ++i) {
      outputs_.push_back(place(comm_, y[i], across(options_.outputs, i), Role::value));
      output_duals_.push_back(place(comm_, y[i], across(options_.outputs, i), Role::cotangent));
    }
    require_same("output", y, outputs_);
    const Tensors u = random(y, output_duals_, 2), v = random(like_, inputs_, 3), q = random(y, output_duals_, 4);
    const Tensors g = gradient(x, u);
    require_same("cotangent of input", g, input_duals_);

    double expected = inner(y, u, outputs_), found = inner(x, g, inputs_);
    if (!options_.linear) {
      expected = derivative([&](double t) { return inner(f_(moved(x, t, v)), u, outputs_); });
      found = inner(g, v, inputs_);
    }
    note("first order", report_.first, error_of(expected, found, norm(g, inputs_) * norm(v, inputs_), inputs_, g), expected,
         found, options_.linear ? options_.tolerance : options_.difference_tolerance);

    if (options_.linear) {
      report_.exact = report_.first;
    } else {
      expected = inner(jvp(f_, x, v), u, outputs_);
      note("<J v, u> and <v, J^T u>", report_.exact, error_of(expected, found, norm(g, inputs_) * norm(v, inputs_), inputs_, g),
           expected, found, options_.tolerance);
    }

    // Through Record::yes, and by a tape around a tape.
    for (const bool nested : {false, true}) {
      Tensors second;
      const auto differentiate = [&](Tape& tape, const Tensors& inner_gradient) {
        Tensors with_respect_to = u;
        if (!options_.linear) with_respect_to.insert(with_respect_to.end(), x.begin(), x.end());
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
      if (options_.linear) {
        const Tensors w = f_(v);
        double worst = 0;
        for (std::size_t i = 0; i < w.size(); ++i) worst = std::max(worst, largest_difference(second[i], w[i]));
        note(how, report_.second, summed(comm_, worst, CombineOp::max), 0, 0, options_.tolerance);
        continue;
      }
      const Tensors by_u(second.begin(), second.begin() + static_cast<std::ptrdiff_t>(u.size()));
      const Tensors by_x(second.begin() + static_cast<std::ptrdiff_t>(u.size()), second.end());
      const Tensors w = random(like_, inputs_, 5);
      const double slope = derivative([&](double t) { return inner(gradient(moved(x, t, w), moved(u, t, q)), v, inputs_); });
      const double exact = inner(by_u, q, outputs_) + inner(by_x, w, inputs_);
      note(how, report_.second, error_of(slope, exact, norm(by_x, inputs_) * norm(w, inputs_), inputs_, by_x), slope, exact,
           options_.difference_tolerance);
    }
    return report_;
  }

 private:
  static Across across(const std::vector<Across>& list, std::size_t i) { return i < list.size() ? list[i] : Across::varying; }

  Tensors random(const Tensors& like, const std::vector<Place>& places, std::uint64_t purpose) const {
    Tensors result;
    for (std::size_t i = 0; i < like.size(); ++i) {
      const auto seed = Philox{.key = options_.seed, .stream = purpose}.child(places[i].key * 100 + i).key;
      result.push_back(random_like({like[i]}, seed)[0].with_layout(like[i].layout()));
    }
    return result;
  }

  // x + t v, new variables.
  static Tensors moved(const Tensors& x, double t, const Tensors& v) {
    Tensors result;
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto values = x[i].to_vector();
      const auto direction = v[i].to_vector();
      if (t != 0)
        for (std::size_t j = 0; j < values.size(); ++j) values[j] += t * direction[j];
      result.push_back(from_vector(x[i].shape(), values, x[i].dtype()).with_layout(x[i].layout()));
    }
    return result;
  }

  Tensors gradient(const Tensors& x, const Tensors& u) {
    Tape tape;
    const Tensors y = f_(x);
    for (const auto& entry : tape.entries()) report_.entries.emplace(entry.name);
    return tape.vjp(y, u, x);
  }

  double inner(const Tensors& a, const Tensors& b, const std::vector<Place>& places) const {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (places[i].counts) sum += inner_product({a[i]}, {b[i]});
    return summed(comm_, sum);
  }
  double norm(const Tensors& a, const std::vector<Place>& places) const { return std::sqrt(inner(a, a, places)); }

  // Relative to what is typical, because a random direction may be nearly at right angles.
  double error_of(double expected, double found, double largest, const std::vector<Place>& places, const Tensors& like) const {
    double elements = 0;
    for (std::size_t i = 0; i < like.size(); ++i) elements += places[i].counts ? static_cast<double>(like[i].elements()) : 0;
    const double typical = 0.05 * largest / std::sqrt(summed(comm_, elements) + 1);
    const double error = std::abs(expected - found) / std::max({std::abs(expected), std::abs(found), typical, 1e-9});
    return std::isfinite(error) ? error : 1e300;
  }

  double derivative(const std::function<double(double)>& g) const {
    std::array<double, 3> d{};
    double h = options_.step;
    for (std::size_t i = 0; i < 3; ++i, h /= 2) d[i] = (g(h) - g(-h)) / (2 * h);
    const double first = (4 * d[1] - d[0]) / 3, second = (4 * d[2] - d[1]) / 3;
    return (16 * second - first) / 15;
  }

  void require_same(const char* what, const Tensors& x, const std::vector<Place>& places) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double largest = summed(comm_, drift(places[i], x[i]), CombineOp::max);
      if (largest <= options_.tolerance) continue;
      report_.passed = false;
      report_.message += fmt::format("{} {} differs between ranks by {:.1e}; ", what, i, largest);
    }
  }

  void note(const char* order, double& worst, double error, double expected, double found, double tolerance) {
    worst = std::max(worst, error);
    if (error <= tolerance) return;
    report_.passed = false;
    report_.message += fmt::format("{} is off by {:.1e}: {} and {}; ", order, error, expected, found);
  }

  const Communicator& comm_;
  TensorFunction f_;
  const AdjointOptions& options_;
  Tensors like_;
  std::vector<Place> inputs_, input_duals_, outputs_, output_duals_;
  AdjointReport report_;
};

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
