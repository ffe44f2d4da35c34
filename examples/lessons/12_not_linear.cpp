// Lesson 12: reductions that are not linear. Maximum with ties, product with zeros.
//
//   build/examples/lessons/12_not_linear              three ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/12_not_linear
//
// A sum is a matrix; a maximum and a product over ranks are not, and their adjoints multiply by the transpose of the Jacobian at
// x. With S = sum over ranks of ybar, because every rank got a copy of the result,
//
//   m = max_r x_r          xbar_r = w_r S, w_r = 1 where x_r = m and 0 elsewhere
//   p = product of x_r     xbar_r = S times the product of the *other* ranks' x
//
// Both have a trap. If k ranks attain the maximum, it has no derivative: along x_r it grows with slope 1 and falls with slope 0.
// Any w_r >= 0 with sum 1 over these ranks is a subgradient; 1 on each of them is not, although "1 where x_r = m" suggests it:
// the gradient is then k times too large. Here w_r = 1/k (Ties::split), the only choice that does not depend on the numbering of
// ranks, or 1 on the lowest of them (Ties::first), which is the choice of MPI_MAXLOC.
//
// The product of the others is p / x_r in many programs, which is not defined at x_r = 0, although the derivative exists there.
// Here it is the product of an exclusive scan from each side, prefix times suffix: no division, exact with zeros, and again an
// op, so that second derivatives are right where the first one vanishes.

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 3, [](Session& session) {
    const auto& comm = session.world();
    const auto rank = session.rank(), P = session.ranks();
    const auto number = [](double value) { return full({1}, value, DType::float64); };
    const auto on_all = [&](const Tensor& mine) {
      std::string line;
      for (const double value : allgather(mine, comm).to_vector()) line += fmt::format("{:6}", value + 0.0);
      return line;
    };
    using Function = std::function<Tensor(const Tensor&)>;
    const auto gradient = [&](const Function& f, const Tensor& x, const Tensor& ybar) {
      Tape tape;
      const Tensor y = f(x);
      return tape.vjp({y}, {ybar}, {x})[0];
    };
    const Tensor ybar = number(rank + 1);  // S = 1 + 2 + ... + P
    const double S = total(ybar, comm);

    // ---- the maximum; all ranks but rank 0 tie
    const Tensor x = number(rank == 0 ? 3 : 5);
    const Function split = [&](const Tensor& at) { return allreduce(at, comm, ReduceOp::max); };
    const Function first = [&](const Tensor& at) { return allreduce(at, comm, ReduceOp::max, Ties::first); };
    say(session, "x   {}      max = {}, S = {}", on_all(x), split(x).item(), S);
    say(session, "split {}", on_all(gradient(split, x, ybar)));
    say(session, "first {}", on_all(gradient(first, x, ybar)));
    // Slopes of <ybar, y> along the last rank's x, to the right and to the left.
    const auto slope = [&](double h) {
      const Tensor step = number(rank == P - 1 ? h : 0);
      return (total(ybar * split(x + step), comm) - total(ybar * split(x), comm)) / h;
    };
    const double right = slope(0.5), left = slope(-0.5);
    say(session, "along the last rank's x: slope {} to the right, {} to the left", right + 0.0, left + 0.0);
    const double mine = gradient(split, x, ybar).item();
    claim(session, rank != P - 1 || (mine >= std::min(left, right) && mine <= std::max(left, right)),
          "split lies between the slopes of both sides: a subgradient");
    claim(session, std::abs(total(gradient(split, x, ybar), comm) - S) < 1e-14 * S && total(gradient(first, x, ybar), comm) == S,
          "all ranks together get S, once, however many tie");

    // A tie is a kink. The check of adjoints detects that there is no derivative to check, and reports it.
    const auto report = adjoint_check([&](const Tensors& in) { return Tensors{split(in[0])}; }, {x}, comm, {.linear = false});
    say(session, "adjoint_check at the tie: {}", P > 2 ? report.message : "(no ties on this many ranks)");
    claim(session, P <= 2 || (!report.passed && !report.kink.empty()),
          "with three ranks or more two of them tie, and it is recognised");
    const Tensor apart = number(2 + rank * rank);
    require_adjoint("max", [&](const Tensors& in) { return Tensors{split(in[0])}; }, {apart}, comm, {.linear = false});
    claim(session, true, "where nobody ties the adjoint passes, to second order");

    // ---- the product; rank 0 holds a zero
    const Function product = [&](const Tensor& at) { return allreduce(at, comm, ReduceOp::prod); };
    const Tensor z = number(rank == 0 ? 0 : rank + 1);
    say(session, "\nx   {}      product = {}", on_all(z), product(z).item());
    const Tensor zbar = gradient(product, z, ybar);
    say(session, "xbar{}", on_all(zbar));
    const Tensor divided = S * product(z) / z;
    say(session, "by division: S p / x_0 is {} on rank 0", std::abs(allgather(divided, comm).to_vector()[0]));
    double others = 1;
    for (int r = 1; r < P; ++r) others *= r + 1;
    claim(session, rank != 0 || zbar.item() == S * others, "rank 0 gets S times the product of the others, {}", S * others);
    require_taylor(
        "product", [&](const Tensors& in) { return Tensors{product(in[0])}; }, {z}, comm);
    claim(session, true, "and it passes the Taylor test at the zero, to second order");

    // ---- two zeros: the gradient is 0 everywhere, the second derivative is not
    const Tensor zz = number(rank < 2 ? 0 : rank + 1);
    const Tensor direction = number(rank == 0 ? 1 : 0);
    Tape tape;
    const Tensor g = tape.vjp({product(zz)}, {ybar}, {zz}, Record::yes)[0];
    const Tensor row = tape.vjp({g}, {direction}, {zz})[0];  // row 0 of the Hessian
    say(session, "\nx   {}\nxbar{}\nH e_0{}", on_all(zz), on_all(g), on_all(row));
    double rest = 1;
    for (int r = 2; r < P; ++r) rest *= r + 1;
    claim(session, P == 1 || (total(abs(g), comm) == 0 && total(abs(row), comm) == S * rest),
          "two zeros: no gradient, but d2/dx_0 dx_1 = S times the product of the rest, {}", S * rest);
  });
}
