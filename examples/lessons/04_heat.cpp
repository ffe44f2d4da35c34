// Lesson 4: halo exchange, its adjoint, and heat that flows backwards.
//
//   build/examples/lessons/04_heat              three ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/04_heat
//
// A rod is cut into blocks, one per rank. A step of the heat equation needs the neighbours of each cell,
//
//   u_i' = u_i + k (u_{i-1} - 2 u_i + u_{i+1}),        u = 0 beyond both ends,
//
// so every rank first fetches one ghost cell from each side: the halo exchange. Stacked over ranks it is a matrix E of zeros and
// ones with one row per cell and ghost. Transposed: the cotangent of a ghost returns to the cell of which the ghost is a copy,
// and is *added* to the cell's own. E^T (1, ..., 1) therefore counts copies: 2 next to a cut and 1 elsewhere. Forgetting to add
// is the classical mistake; the gradient is then wrong only next to the cuts, which is easy to miss.
//
// With S for the step on cells and ghosts, the final state is u_T = A u_0, A = S E S E ... S E. Given u_T, find u_0: minimise
//
//   J(u_0) = 1/2 |A u_0 - u_T|^2,        dJ/du_0 = A^T (A u_0 - u_T),
//
// where A^T runs back through all time steps and across all ranks, computed by the tape. J is quadratic and its Hessian is A^T A,
// so conjugate gradients need only gradients: A^T A p is the gradient of 1/2 |A p|^2 at p.

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t cells = 48;
constexpr int steps = 12;
constexpr double k = 0.2;

struct Rod {
  Communicator comm;
  BoxPlanPtr halo;

  // Cells are numbered from 1, so rank r has [c_r + 1, c_{r+1} + 1) and needs one more on each side. No rank has the places 0 and
  // `cells` + 1: an exchange returns 0 for them.
  explicit Rod(const Communicator& comm_) : comm(comm_) {
    const auto cuts = balanced_cuts(cells, comm.size());
    BoxPlan plan;
    for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
      plan.have.push_back({{cuts[r] + 1}, {cuts[r + 1] + 1}});
      plan.need.push_back({{cuts[r]}, {cuts[r + 1] + 2}});
    }
    halo = std::make_shared<const BoxPlan>(plan);
  }

  Tensor step(const Tensor& u) const {
    const Tensor ghosts = exchange(u, comm, halo);
    const auto n = u.dim(0);
    return u + k * (slice(ghosts, 0, 0, n) - 2 * u + slice(ghosts, 0, 2, n + 2));
  }
  Tensor evolve(Tensor u) const {
    for (int t = 0; t < steps; ++t) u = step(u);
    return u;
  }
  // Gradient at u of 1/2 |A u - target|^2.
  Tensor gradient(const Tensor& u, const Tensor& target) const {
    Tape tape;
    return tape.gradient(0.5 * sum(square(evolve(u) - target)), {u})[0];
  }
  double inner(const Tensor& a, const Tensor& b) const { return total(dot(a, b), comm); }
};

std::string picture(const Tensor& u) {
  std::string line;
  for (const double v : u.to_vector()) line += " .:-=+*#%@"[static_cast<std::size_t>(std::clamp(9.99 * v, 0.0, 9.0))];
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 3, [](Session& session) {
    const Rod rod(session.world());
    const auto bump = [i = arange(cells, DType::float64)](double height, double centre, double width) {
      return height * exp(-square((i - centre) / width));
    };
    const Tensor whole = bump(0.95, 15, 2.5) + bump(0.6, 22, 2) + bump(0.8, 36, 4), truth = my_rows(whole, session.world());

    // The adjoint of the exchange, applied to ones.
    const Tensor x = zeros_like(truth);
    Tape tape;
    const Tensor y = exchange(x, rod.comm, rod.halo);
    std::string copies;
    for (const double c : tape.vjp({y}, {ones_like(y)}, {x})[0].to_vector()) copies += fmt::format("{:.0f}", c);
    const auto draw = [&](const char* title, const std::string& mine) {
      say_in_turn(session, (session.rank() == 0 ? fmt::format("{:8}", title) : "|") + mine +
                               (session.rank() == session.ranks() - 1 ? "\n" : ""));
    };
    const Tensor final = rod.evolve(truth);
    say(session, "E^T 1 counts the copies of a cell; | is a cut between ranks; u_T is u_0 after {} steps", steps);
    draw("E^T 1", copies);
    draw("u_0", picture(truth));
    draw("u_T", picture(final));
    say(session, "\nconjugate gradients: step, |A u - u_T| and the error |u - u_0|, both relative");
    // Starts from 0; the residual r is minus the gradient, q = A^T A p.
    const Tensor zero = zeros_like(truth);
    Tensor u = zero, r = -rod.gradient(u, final), p = r;
    double error = 1, rho = rod.inner(r, r);
    for (int i = 1; i <= 40; ++i) {
      const Tensor q = rod.gradient(p, zero);
      const double alpha = rho / rod.inner(p, q), before = rho;
      u = u + alpha * p, r = r - alpha * q;
      rho = rod.inner(r, r);
      p = r + rho / before * p;
      const Tensor misfit = rod.evolve(u) - final;
      error = std::sqrt(rod.inner(u - truth, u - truth) / rod.inner(truth, truth));
      if (i % 5 == 0)
        say(session, "{:3}   {:.2e}   {:.2e}", i, std::sqrt(rod.inner(misfit, misfit) / rod.inner(final, final)), error);
    }
    draw("found", picture(u));
    claim(session, error < 0.03, "the initial state is recovered, to {:.1f} % (ill-posed: the misfit falls much faster)",
          100 * error);

    // The whole rod on one rank: the same class, on a communicator of one.
    const Rod alone(session.world().split(session.rank(), 0));
    const Tensor same = my_rows(alone.gradient(zeros_like(whole), alone.evolve(whole)), session.world());
    claim(session, distance(rod.gradient(zero, final), same) < 1e-14, "the gradient is that of one rank, beside cuts too");
  });
}
