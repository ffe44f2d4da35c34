// An existing code becomes an op: a heat equation with arrays, ghost cells and MPI calls of its own, and a hand-written adjoint.
//
//   mpiexec -n 2 build/examples/existing_code
//
// prints how far its gradients are from those of the same equation in ops, and what both cost. ../existing_code.md explains it.

#include <mpigrad/mpigrad.h>
#include "comm/transport/mpi/mpi_comm.h"  // includes <mpi.h>
using namespace mpigrad;

// ---- the existing code: u' = u + dt k (sum of the four neighbours - 4 u), u = 0 outside, rows [1, rows] of ghosted arrays

struct Code {
  Code(MPI_Comm world, int rows_of_this_rank, int columns) : rows(rows_of_this_rank), width(columns + 2) {
    MPI_Comm_dup(world, &comm);
    int rank = 0, size = 0;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    for (auto* array : {&u, &k, &next}) array->assign(static_cast<std::size_t>((rows + 2) * width), 0);
  }
  ~Code() { MPI_Comm_free(&comm); }
  Code(const Code&) = delete;

  void exchange() {
    const auto row = [&](int i) { return u.data() + i * width; };
    MPI_Sendrecv(row(1), width, MPI_DOUBLE, up, 0, row(rows + 1), width, MPI_DOUBLE, down, 0, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(rows), width, MPI_DOUBLE, down, 1, row(0), width, MPI_DOUBLE, up, 1, comm, MPI_STATUS_IGNORE);
  }
  double neighbours(const double* c) const { return c[-width] + c[width] + c[-1] + c[1] - 4 * c[0]; }
  template <class F>
  void for_cells(const F& f) const {
    for (int i = 1; i <= rows; ++i)
      for (int c = i * width + 1; c < (i + 1) * width - 1; ++c) f(static_cast<std::size_t>(c));
  }
  void step() {
    exchange();
    for_cells([&](std::size_t c) { next[c] = u[c] + dt * k[c] * neighbours(&u[c]); });
  }

  // The adjoint of step(), written by hand: from g = dJ/dnext to a = dJ/du and b = dJ/dk, arrays like u that begin with zeros.
  void step_adjoint(const std::vector<double>& g, std::vector<double>& a, std::vector<double>& b) {
    exchange();  // neighbours(u) reads ghosts
    for_cells([&](std::size_t c) {
      const double w = dt * k[c] * g[c];
      b[c] += dt * neighbours(&u[c]) * g[c];
      double* at = &a[c];
      at[0] += g[c] - 4 * w, at[-width] += w, at[width] += w, at[-1] += w, at[1] += w;
    });
    exchange_adjoint(a);
  }
  // Ghost rows go home, where they are added.
  void exchange_adjoint(std::vector<double>& a) const {
    std::vector<double> from_up(static_cast<std::size_t>(width)), from_down(from_up);
    const auto row = [&](int i) { return a.data() + i * width; };
    MPI_Sendrecv(row(rows + 1), width, MPI_DOUBLE, down, 2, from_up.data(), width, MPI_DOUBLE, up, 2, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(0), width, MPI_DOUBLE, up, 3, from_down.data(), width, MPI_DOUBLE, down, 3, comm, MPI_STATUS_IGNORE);
    for (std::size_t j = 0; j < from_up.size(); ++j) row(1)[j] += from_up[j], row(rows)[j] += from_down[j];
  }

  static constexpr double dt = 0.2;
  int rows, width, up = 0, down = 0;
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<double> u, k, next;
};

// ---- from the code to an op

double packing = 0;  // seconds spent in copies between tensors and ghosted arrays
struct Seconds {
  double all = 0, copies = 0;
};

void load(const Code& code, const Tensor& x, std::vector<double>& array) {
  const double begin = MPI_Wtime();
  to_strided(x, &array[static_cast<std::size_t>(code.width + 1)], {code.width, 1});
  packing += MPI_Wtime() - begin;
}
Tensor stored(const Code& code, const std::vector<double>& array) {
  const double begin = MPI_Wtime();
  Tensor x = from_strided(&array[static_cast<std::size_t>(code.width + 1)], {code.rows, code.width - 2}, {code.width, 1},
                          DType::float64);
  packing += MPI_Wtime() - begin;
  return x;
}

// next = step(u, k), both [rows, columns]
External op_of(Code& code) {
  const auto forward = [&code](Inputs x, Outputs y) {
    load(code, x[0], code.u), load(code, x[1], code.k);
    code.step();
    y[0] = stored(code, code.next);
  };
  const auto adjoint = [&code](const Replay& at, Inputs ybar, Outputs xbar) {
    std::vector<double> g(code.u.size()), a(code.u.size()), b(code.u.size());
    load(code, at.input(0), code.u), load(code, at.input(1), code.k), load(code, ybar[0], g);
    code.step_adjoint(g, a, b);
    xbar[0] = stored(code, a), xbar[1] = stored(code, b);
  };
  return external("heat step", forward, adjoint, {.communicates = true});
}

// ---- the same in ops: u and k are [1, rows, columns, 1, 1]

Tensor step_in_ops(const Tensor& u, const Tensor& k) {
  static const Tensor stencil = constant(from_vector({1, 3, 3, 1, 1}, {0, 1, 0, 1, -4, 1, 0, 1, 0}, DType::float64));
  return u + Code::dt * k * conv(u, stencil, {.padding = {1, 1, 0}});
}

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    constexpr std::int64_t height = 96, columns = 128, steps = 20;
    const auto slabs = activation_layout(session.grid({.depth = session.ranks()}), {1, height, columns, 1, 1});
    const Tensor u0 = random_uniform(slabs->global, {.key = 1}, 0, 1, DType::float64, slabs);
    const Tensor k0 = random_uniform(slabs->global, {.key = 2}, 0.5, 1, DType::float64, slabs);
    Code code(mpi_communicator(session.world().transport()), static_cast<int>(u0.dim(1)), columns);
    const External wrapped = op_of(code);
    const auto plain = [](const Tensor& x) { return reshape(x.without_layout(), {x.dim(1), x.dim(2)}); };

    // The gradient of the sum of u^2 after `steps` steps, and the best time of five.
    const auto gradient_of = [&](const auto& step_of, const Tensor& u, const Tensor& k, Seconds& best) {
      Tensors gradient;
      for (int repeat = 0; repeat < 5; ++repeat) {
        packing = 0;
        const double begin = MPI_Wtime();
        Tape tape;
        Tensor x = u;
        for (int i = 0; i < steps; ++i) x = step_of(x, k);
        gradient = tape.gradient(sum(square(x)), {u, k});
        if (const double all = MPI_Wtime() - begin; repeat == 0 || all < best.all) best = {.all = all, .copies = packing};
      }
      return gradient;
    };
    Seconds by_code, by_ops;
    const auto step = [&](const Tensor& u, const Tensor& k) -> Tensor { return wrapped({u, k}).front(); };
    const Tensors found = gradient_of(step, plain(u0), plain(k0), by_code);
    const Tensors expected = gradient_of(step_in_ops, u0, k0, by_ops);
    double difference = 0;
    for (std::size_t i = 0; i < 2; ++i) difference = std::max(difference, largest_difference(found[i], plain(expected[i])));

    const auto f = [&](const Tensors& x) { return wrapped({x[0], x[1]}); };
    const auto adjoint = adjoint_check(f, {plain(u0), plain(k0)}, session.world(), {.second = false});
    require_taylor("heat step", f, {plain(u0), plain(k0)}, session.world(), {.second = false});
    require(difference < 1e-12 && adjoint.passed, "[heat] the gradients differ by {}, the adjoint is off by {}", difference,
            adjoint.first);
    fmt::print("rank {}: {} x {} cells, {} steps: gradients differ by {:.0e}, the adjoint is off by {:.0e}\n", session.rank(),
               code.rows, columns, steps, difference, adjoint.first);
    fmt::print("rank {}: a gradient takes {:.2f} ms by the code, of which copies take {:.2f} ms, and {:.2f} ms by ops\n",
               session.rank(), 1e3 * by_code.all, 1e3 * by_code.copies, 1e3 * by_ops.all);
  });
}
