// An op whose adjoint CoDiPack makes: the step of an existing code is a template over its number type, and halos are ops.
//
//   meson setup build -Dcodipack=FOLDER   (that has codi.hpp; https://github.com/SciCompKL/CoDiPack, GPL)
//   mpiexec -n 2 build/examples/codipack
//
// prints the errors of the adjoint and of the Taylor test, and what CoDiPack's tape holds at most.

#include <mpigrad/mpigrad.h>
#include <codi.hpp>
using namespace mpigrad;

// ---- the existing code: u' = u + dt div(k (1 + u^2) grad u) on rows [0, rows) of an array with a ghost row above and below

template <class Real>
void step(const Real* u, const Real* k, Real* next, std::int64_t rows, std::int64_t columns) {
  constexpr double dt = 0.05;
  const auto flux = [&](std::int64_t a, std::int64_t b) {  // from cell a to cell b
    const Real middle = 0.5 * (u[a] + u[b]);
    return Real(0.5 * (k[a] + k[b]) * (1 + middle * middle) * (u[a] - u[b]));
  };
  for (std::int64_t i = 1; i <= rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t c = i * columns + j;
      Real into = flux(c - columns, c) - flux(c, c + columns);
      if (j > 0) into += flux(c - 1, c);
      if (j + 1 < columns) into -= flux(c, c + 1);
      next[c - columns] = u[c] + dt * into;
    }
}

// ---- the op: next [rows, columns] of u and k, both [rows + 2, columns]

double most_bytes = 0;

External diffusion() {
  const auto forward = [](Inputs x, Outputs y) {
    step(x[0].data<double>(), x[1].data<double>(), y[0].mutable_data<double>(), y[0].dim(0), y[0].dim(1));
  };
  const auto adjoint = [](const Replay& at, Inputs ybar, Outputs xbar) {
    using Real = codi::RealReverse;
    auto& tape = Real::getTape();
    const std::int64_t rows = ybar[0].dim(0), columns = ybar[0].dim(1);
    std::array<std::vector<Real>, 2> x;
    std::vector<Real> y(static_cast<std::size_t>(rows * columns));
    tape.setActive();
    for (std::size_t i = 0; i < 2; ++i) {
      const auto* values = at.input(static_cast<int>(i)).data<double>();
      x[i].assign(values, values + (rows + 2) * columns);
      for (auto& each : x[i]) tape.registerInput(each);
    }
    step(x[0].data(), x[1].data(), y.data(), rows, columns);
    for (std::size_t c = 0; c < y.size(); ++c) tape.registerOutput(y[c]), y[c].setGradient(ybar[0].data<double>()[c]);
    tape.setPassive();
    most_bytes = std::max(most_bytes, tape.getTapeValues().getUsedMemorySize());
    tape.evaluate();
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t c = 0; c < x[i].size(); ++c) xbar[i].mutable_data<double>()[c] += x[i][c].getGradient();
    tape.reset();
  };
  const auto without_ghosts = [](Inputs x) {
    require(x[0].type() == x[1].type() && x[0].dtype() == DType::float64 && x[0].dim(0) > 2, "[diffusion] {} and {}", x[0], x[1]);
    return Types{{{x[0].dim(0) - 2, x[0].dim(1)}, DType::float64}};
  };
  return external("diffusion", forward, adjoint, {.infer = without_ghosts});
}

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    constexpr std::int64_t rows = 12, columns = 16, steps = 10;
    const External op = diffusion();
    const auto& world = session.world();
    // x with a row of each neighbour; zeros outside.
    const auto with_halo = [&](const Tensor& x) {
      return concatenate({from_before(slice(x, {rows - 1, 0}, {rows, columns}), world, 1), x,
                          from_before(slice(x, {0, 0}, {1, columns}), world, 1, Direction::down)},
                         0);
    };
    const auto f = [&](const Tensors& x) {
      const Tensor k = with_halo(x[1]);
      Tensor u = x[0];
      for (int i = 0; i < steps; ++i) u = op({with_halo(u), k}).front();
      return Tensors{u};
    };
    const std::uint64_t rank = static_cast<std::uint64_t>(session.rank());
    const Tensor u = random_uniform({rows, columns}, {.key = 1 + 2 * rank}, 0, 1, DType::float64);
    const Tensor k = random_uniform({rows, columns}, {.key = 2 + 2 * rank}, 0.5, 1, DType::float64);
    const auto adjoint = adjoint_check(f, {u, k}, world, {.second = false});
    require(adjoint.passed, "[diffusion] the adjoint is off by {}", adjoint.first);
    require_taylor("diffusion", f, {u, k}, world, {.second = false});
    fmt::print("rank {}: {} steps of {} x {} cells: the adjoint is off by {:.0e}; CoDiPack's tape has {:.0f} KiB, of one step\n",
               session.rank(), steps, rows, columns, adjoint.first, most_bytes / 1024);
  });
}
