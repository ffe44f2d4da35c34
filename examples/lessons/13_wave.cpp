// Lesson 13: a membrane, corners in its halo, and a gradient through 100 steps that fits into memory.
//
//   build/examples/lessons/13_wave              four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/13_wave
//
// A membrane in blocks over a grid of ranks. A step of the wave equation u_tt = c^2 (u_xx + u_yy) with leapfrog in time and nine
// points in space,
//
//                                                1 [ 1   4  1 ]
//   u_{t+1} = 2 u_t - u_{t-1} + c^2 L u_t,   L = - [ 4 -20  4 ]       u = 0 beyond the rim,
//                                                6 [ 1   4  1 ]
//
// also reads the diagonal neighbours: each block needs ghosts from up to eight ranks. If they are named as boxes, one exchange
// fetches all of them including corners, and so does the adjoint: a cell in a corner of a block has four copies, and E^T (1, ...,
// 1) counts them.
//
// Data assimilation: some sensors measured the membrane at a few times. To find u_0, minimise
//
//   J(u_0) = 1/2 sum over t of |H u_t - d_t|^2          H selects the sensors
//
// over all cells; the gradient runs back through 100 steps and all ranks. The speed c^2 is an input, too, whose gradient is of
// interest in seismology; so the tape keeps L u_t of every step. `recompute` keeps only the input of a segment of steps and runs
// the segment again in the replay: sqrt(T) segments of sqrt(T) steps need 2 sqrt(T) states instead of T, for one more forward
// pass (Griewank and Walther, 2000, continue to log T). Other variables that a segment uses, here c^2, get their gradients as
// well.

#include <utility>

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t cells = 40;  // in each direction
constexpr int segments = 10, steps = 10;

struct Membrane {
  Communicator comm;
  std::vector<Box> have, need;  // in cells plus a rim of one, so that cell (i, j) is at (i + 1, j + 1)
  BoxPlanPtr halo;

  explicit Membrane(const Communicator& comm_) : comm(comm_) {
    int rows = static_cast<int>(std::sqrt(comm.size()));
    while (comm.size() % rows != 0) --rows;
    const auto i = balanced_cuts(cells, rows), j = balanced_cuts(cells, comm.size() / rows);
    for (std::size_t a = 0; a + 1 < i.size(); ++a)
      for (std::size_t b = 0; b + 1 < j.size(); ++b) {
        have.push_back({{i[a] + 1, j[b] + 1}, {i[a + 1] + 1, j[b + 1] + 1}});
        need.push_back({{i[a], j[b]}, {i[a + 1] + 2, j[b + 1] + 2}});
      }
    halo = std::make_shared<const BoxPlan>(BoxPlan{have, need});
  }
  Box mine() const { return have[static_cast<std::size_t>(comm.rank())]; }
  double inner(const Tensor& a, const Tensor& b) const { return total(dot(a, b), comm); }
  // This rank's cells of a function of the position.
  Tensor cut(const std::function<double(double, double)>& f) const {
    std::vector<double> values;
    for (auto i = mine().begin[0]; i < mine().end[0]; ++i)
      for (auto j = mine().begin[1]; j < mine().end[1]; ++j)
        values.push_back(f(static_cast<double>(i - 1), static_cast<double>(j - 1)));
    return from_vector({mine().end[0] - mine().begin[0], mine().end[1] - mine().begin[1]}, values, DType::float64);
  }

  Tensor laplacian(const Tensor& u) const {
    const Tensor ghosts = exchange(u, comm, halo);
    const auto at = [&](int i, int j) { return slice(slice(ghosts, 0, 1 + i, 1 + i + u.dim(0)), 1, 1 + j, 1 + j + u.dim(1)); };
    return (4 * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) + at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1) - 20 * u) / 6;
  }
  // Takes u_t on top of u_{t-1}; returns the same `steps` later.
  Tensor advance(const Tensor& state, const Tensor& speed) const {
    Tensor u = upper(state), before = slice(state, 0, u.dim(0), state.dim(0));
    for (int t = 0; t < steps; ++t) before = std::exchange(u, 2 * u - before + speed * laplacian(u));
    return concatenate({u, before}, 0);
  }
  static Tensor upper(const Tensor& state) { return slice(state, 0, 0, state.dim(0) / 2); }

  // The measurements of the sensors after each segment; initially at rest.
  Tensors observe(const Tensor& u, const Tensor& speed, const Tensor& sensors, bool again) const {
    Tensors seen;
    Tensor state = concatenate({u, u}, 0);
    const auto segment = [self = *this, speed](const Tensor& from) { return self.advance(from, speed); };
    for (int s = 0; s < segments; ++s) {
      state = again ? recompute(segment, state) : segment(state);
      seen.push_back(upper(state) * sensors);
    }
    return seen;
  }
  // This rank's share of J.
  Tensor misfit(const Tensors& seen, const Tensors& data) const {
    Tensor share = zeros({}, DType::float64);
    for (std::size_t s = 0; s < seen.size(); ++s) share = share + 0.5 * sum(square(data.empty() ? seen[s] : seen[s] - data[s]));
    return share;
  }
  Tensors gradient(const Tensor& u, const Tensor& speed, const Tensor& sensors, const Tensors& data, bool again) const {
    Tape tape;
    return tape.gradient(misfit(observe(u, speed, sensors, again), data), {u, speed});
  }

  // Gathers the membrane on rank 0: an exchange in which no other rank needs anything.
  Tensor whole(const Tensor& u) const {
    BoxPlan plan{have, std::vector<Box>(have.size(), Box{{1, 1}, {1, 1}})};
    plan.need[0] = {{1, 1}, {cells + 1, cells + 1}};
    return exchange(u, comm, std::make_shared<const BoxPlan>(plan));
  }
};

void draw(const Session& session, const Membrane& membrane, const std::vector<Tensor>& pictures) {
  std::vector<std::vector<double>> values;
  for (const auto& each : pictures) values.push_back(membrane.whole(each).to_vector());
  if (session.rank() != 0) return;
  for (std::size_t i = 0; i < cells; i += 2) {
    std::string line;
    for (const auto& each : values) {
      for (std::size_t j = 0; j < cells; ++j)
        line += " .:-=+*#%@"[static_cast<std::size_t>(std::clamp(9.99 * std::abs(each[i * cells + j]), 0.0, 9.0))];
      line += " | ";
    }
    fmt::print("  {}\n", line);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const Membrane membrane(session.world());
    const auto bump = [](double i, double j, double y, double x, double width) {
      return std::exp(-((i - y) * (i - y) + (j - x) * (j - x)) / (width * width));
    };
    const auto hills = [&](double i, double j) { return 0.95 * bump(i, j, 12, 13, 4) + 0.7 * bump(i, j, 27, 24, 5); };
    const auto lens = [&](double i, double j) { return 0.25 - 0.12 * bump(i, j, 20, 30, 8); };  // slow in the middle
    const auto lattice = [](double i, double j) { return int(i) % 2 == 1 && int(j) % 2 == 1 ? 1.0 : 0.0; };
    const Tensor truth = membrane.cut(hills), speed = membrane.cut(lens), sensors = membrane.cut(lattice);

    // Corners have more copies than edges.
    Tape tape;
    const Tensor x = zeros_like(truth), y = exchange(x, membrane.comm, membrane.halo);
    const Tensor copies = tape.vjp({y}, {ones_like(y)}, {x})[0];
    say_in_turn(session,
                fmt::format("rank {}: a cell in a corner of its block has {} copies\n", session.rank(), max(copies).item()));

    // The gradient, with and without recomputation, and the memory of each at its peak.
    const Tensors data = membrane.observe(truth, speed, sensors, false);
    const auto zero = zeros_like(truth);
    const auto measured = [&](bool again) {
      const auto held = [] { return memory_statistics(DeviceKind::cpu); };
      barrier(membrane.comm);
      // Ranks as threads share their memory.
      if (session.rank() == 0 || !membrane.comm.transport().in_one_process()) reset_peak_memory(DeviceKind::cpu);
      barrier(membrane.comm);
      const auto before = held().current_bytes;
      const Tensors g = membrane.gradient(zero, speed, sensors, data, again);
      barrier(membrane.comm);
      return std::pair{g, double(held().peak_bytes - before) / 1024};
    };
    const auto [g, kept] = measured(false);
    const auto [g_again, recomputed] = measured(true);
    say(session, "\na gradient through {} steps: {:.0f} KiB on the tape, {:.0f} KiB with recompute, {:.2f} of it",
        segments * steps, kept, recomputed, recomputed / kept);
    claim(session, distance(g[0], g_again[0]) < 1e-14 && distance(g[1], g_again[1]) < 1e-14, "it is the same gradient");
    claim(session, recomputed < 0.7 * kept, "in less memory");
    require_taylor(
        "J(u_0, c^2)",
        [&](const Tensors& in) { return Tensors{membrane.misfit(membrane.observe(in[0], in[1], sensors, true), data)}; },
        {zero, speed}, membrane.comm, {.step = 0.01, .halvings = 4});
    claim(session, true, "and that of J by u_0 and c^2 together, to second order (Taylor test)");

    // u_0 -> H u_t is linear: conjugate gradients, as in lesson 4.
    Tensor u = zero, r = -g[0], p = r;
    double rho = membrane.inner(r, r), error = 1;
    say(session, "\nconjugate gradients: step, and the error |u - u_0| / |u_0|");
    for (int k = 1; k <= 30; ++k) {
      const Tensor q = membrane.gradient(p, speed, sensors, {}, true)[0];
      const double alpha = rho / membrane.inner(p, q), before = rho;
      u = u + alpha * p, r = r - alpha * q;
      rho = membrane.inner(r, r);
      p = r + rho / before * p;
      error = std::sqrt(membrane.inner(u - truth, u - truth) / membrane.inner(truth, truth));
      if (k % 10 == 0) say(session, "{:3}   {:.2e}", k, error);
    }
    say(session, "\nu_0, the membrane {} steps later, and the recovered u_0", segments * steps);
    Tensor state = concatenate({truth, truth}, 0);
    for (int s = 0; s < segments; ++s) state = membrane.advance(state, speed);
    draw(session, membrane, {truth, Membrane::upper(state), u});
    claim(session, error < 0.02, "u_0 is recovered to {:.1f} % by {} sensors", 100 * error, membrane.inner(sensors, sensors));

    // The same on one rank.
    const Membrane alone(session.world().split(session.rank(), 0));
    const Tensor its_truth = alone.cut(hills), its_speed = alone.cut(lens), its_sensors = alone.cut(lattice);
    const Tensors its = alone.gradient(zeros_like(its_truth), its_speed, its_sensors,
                                       alone.observe(its_truth, its_speed, its_sensors, false), false);
    const auto cut_out = [&](const Tensor& all) {
      const Box box = membrane.mine();
      return slice(slice(all, 0, box.begin[0] - 1, box.end[0] - 1), 1, box.begin[1] - 1, box.end[1] - 1);
    };
    claim(session, distance(g[0], cut_out(its[0])) < 1e-12 && distance(g[1], cut_out(its[1])) < 1e-12,
          "both gradients are those of one rank, at edges and corners, too");
  });
}
