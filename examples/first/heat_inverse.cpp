// An inverse problem: the conductivity k of a plate, from temperatures at the end of four experiments, on any number of ranks.
//
//   mpiexec -n 2 build/examples/heat_inverse
//
// prints the misfit and the error of k after every fifth iteration of L-BFGS, the same on one rank and on `--transport threads
// --ranks 3`: at the end k is known to four digits. Each rank has some rows of the plate.
//
//   du/dt = div(k grad u)      time_steps() repeats a step of the method of Heun and keeps 4 of its 30 states;
//                              fields::gradient and fields::divergence are differences of fourth order on a periodic plate
//   k = exp(m)                 is positive; lbfgs() minimises |u(m) - data|^2 / 2 + a little |grad m|^2 over the split field m
//
// No adjoint equation is written by hand: the gradient is that of this program, halos included.

#include <mpigrad/mpigrad.h>

#include <numbers>
using namespace mpigrad;

constexpr std::int64_t rows = 16, columns = 8, count = 30;
constexpr double spacing = 1.0 / 8, dt = 8e-4;
const fields::DifferenceOptions differences{.spacing = {spacing, spacing, spacing}, .order = 4};

// du/dt for temperatures u: [1, D, H, 1, experiments] and conductivity k: [1, D, H, 1, 1]
Tensor rate(const Tensor& u, const Tensor& k) { return fields::divergence(k * fields::gradient(u, differences), differences); }

// The temperatures after all steps.
Tensor heated(const Tensor& u, const Tensor& k) {
  const auto heun = [k](const Tensor& now) {
    const auto first = rate(now, k), second = rate(now + dt * first, k);
    return now + 0.5 * dt * (first + second);
  };
  return time_steps(heun, u, count, {.snapshots = 4});
}

// This rank's block of a field with the value f(row, column) of a plate of 16 x 8 points.
Tensor block_of(const LayoutPtr& layout, const std::function<double(double row, double column, std::int64_t channel)>& f) {
  const auto box = layout->box();
  std::vector<double> values;
  for (auto row = box.begin[1]; row < box.end[1]; ++row)
    for (auto column = box.begin[2]; column < box.end[2]; ++column)
      for (auto channel = box.begin[4]; channel < box.end[4]; ++channel)
        values.push_back(f(static_cast<double>(row), static_cast<double>(column), channel));
  return constant(from_vector(box.extents(), values, DType::float64)).with_layout(layout);
}

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto grid = session.grid({.depth = session.ranks()});
    const auto scalar = activation_layout(grid, {1, rows, columns, 1, 1}),
               four = activation_layout(grid, {1, rows, columns, 1, 4});
    const double turn = 2 * std::numbers::pi;
    const auto truth = block_of(scalar, [&](double row, double column, std::int64_t) {
      return std::exp(0.5 * std::sin(turn * row / rows) + 0.4 * std::cos(turn * (row / rows + column / columns)));
    });
    const auto start = block_of(four, [&](double row, double column, std::int64_t experiment) {
      const double angle = experiment % 2 == 0 ? row / rows : column / columns;
      return experiment < 2 ? std::sin(turn * angle) : std::cos(turn * angle);
    });
    const auto data = constant(heated(start, truth));

    const auto objective = [&](const Tensors& m) {
      const auto misfit = heated(start, exp(m[0])) - data;
      return 0.5 * sum(square(misfit)) + 1e-10 * sum(square(fields::gradient(m[0], differences)));
    };
    const auto show = [&](const Minimum& at) {
      const auto k = exp(at.x[0]);
      const double error = global_norm(k - truth) / global_norm(truth);
      if (session.rank() == 0 && at.iterations % 5 == 0)
        fmt::print("iteration {:3}: misfit {:.3e}, error of k {:.1e}\n", at.iterations, at.value, error);
      return true;
    };
    const auto found = lbfgs(objective, {zeros_like(truth)}, {.pairs = 20, .iterations = 30, .tolerance = 1e-5, .after = show});
    const double error = global_norm(exp(found.x[0]) - truth) / global_norm(truth);
    if (session.rank() == 0)
      fmt::print("end: {} after {} evaluations; error of k {:.1e}\n", found.reason, found.evaluations, error);
  });
}
