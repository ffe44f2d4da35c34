// Lesson 0: what reverse mode is. One process, no messages.
//
//   build/examples/lessons/00_reverse_mode
//
// A program that maps n numbers to m numbers is a function y = f(x). Near a point it is linear: y changes by J v when x changes
// by a small v. The m x n matrix J of all dy_i/dx_j is its Jacobian. There are two ways to use it.
//
//   forwards    "how does y change along v?"         J v       v has n numbers, J v has m
//   backwards   "how does the result depend on x?"   J^T u     u has m numbers, J^T u has n
//
// u is the derivative of some final result by each y_i. It is called the cotangent of y and written ybar, and xbar = J^T ybar.
// For one number L at the end, Lbar = 1 and xbar is the gradient dL/dx: all n derivatives at once.
//
// J is never computed. A program is a chain of steps, f = f_k o ... o f_1, so J = J_k ... J_1 and
//
//   xbar = J_1^T (J_2^T ( ... (J_k^T ybar)))
//
// which runs from the last step to the first. That is why it is called reverse mode, why the steps are recorded on the way
// forwards (on a tape), and why only the adjoint of every single step, its J_i^T, must be known. If a value is read twice, the
// cotangents from both readers are added.
//
// An adjoint can be tested without knowing J: <J v, u> = <v, J^T u> for random u and v, the dot-product test. Taylor's theorem
// tests if it belongs to f: f(x + h v) - f(x) - h <g, v> falls as h^2 if g is the gradient of f.
//
// From lesson 1 on, x is the data of all ranks, one part on top of the other, and the steps include messages. Nothing else
// changes.

#include <utility>

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

// f(x) = (x_0 x_1, x_1 exp(x_2)), so that
//
//   J = [ x_1  x_0     0           ]
//       [ 0    exp x_2 x_1 exp x_2 ]
Tensor f(const Tensor& x) {
  const auto part = [&](int i) { return slice(x, 0, i, i + 1); };
  const Tensor a = part(0) * part(1), b = exp(part(2)), c = part(1) * b;
  return concatenate({a, c}, 0);
}

Tensor vector(const std::vector<double>& values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, DType::float64);
}
Tensor unit(int n, int i) {
  std::vector<double> values(static_cast<std::size_t>(n), 0.0);
  values[static_cast<std::size_t>(i)] = 1;
  return vector(values);
}
std::string text(const Tensor& x) {
  std::string line;
  for (const double value : x.to_vector()) line += fmt::format("{:6}", value + 0.0);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 1, [](Session& session) {
    const Tensor x = vector({2, 3, 0});
    say(session, "x ={}     y = f(x) = (x_0 x_1, x_1 exp(x_2)) ={}\n", text(x), text(f(x)));

    // Backwards: unit cotangent i gives row i of J. The tape computes it; no derivative is written by hand.
    const auto backwards = [&](const Tensor& ybar) {
      Tape tape;
      const Tensor y = f(x);
      return tape.vjp({y}, {ybar}, {x})[0];
    };
    // Forwards: unit direction j gives column j of J.
    const auto forwards = [&](const Tensor& v) { return jvp(f, x, v); };
    say(session, "J by rows, each one replay of the tape        its columns, each one direction");
    double apart = 0;
    for (int j = 0; j < 3; ++j) {
      const std::string row = j < 2 ? text(backwards(unit(2, j))) : std::string(18, ' ');
      say(session, "  {}                            {}", row, text(forwards(unit(3, j))));
      for (int i = 0; i < 2; ++i)
        apart = std::max(apart, std::abs(backwards(unit(2, i)).to_vector()[static_cast<std::size_t>(j)] -
                                         forwards(unit(3, j)).to_vector()[static_cast<std::size_t>(i)]));
    }
    claim(session, apart == 0, "rows asked for backwards are the columns asked for forwards");

    // The replay, step by step. x_1 has two readers, whose cotangents are added.
    const Tensor ybar = vector({1, 10});
    Tape tape;
    const Tensor y = f(x);
    say(session, "\non the tape: {}", names(tape.entries()));
    const Tensor xbar = tape.vjp({y}, {ybar}, {x})[0];
    say(session, "ybar ={}", text(ybar));
    const auto at = x.to_vector(), cotangents = ybar.to_vector();
    const double b = std::exp(at[2]), abar = cotangents[0], cbar = cotangents[1], bbar = cbar * at[1];
    const std::vector<double> by_hand{abar * at[1], cbar * b + abar * at[0], bbar * b};
    say(session, "  c = x_1 b      x_1 gets {} b = {}, b gets {} x_1 = {}", cbar, cbar * b, cbar, bbar);
    say(session, "  b = exp(x_2)   x_2 gets {} b = {}", bbar, bbar * b);
    say(session, "  a = x_0 x_1    x_0 gets {} x_1 = {}, x_1 gets {} x_0 = {} more", abar, abar * at[1], abar, abar * at[0]);
    say(session, "xbar ={}", text(xbar));
    claim(session, distance(xbar, vector(by_hand)) == 0, "the tape finds the result by hand, and both readers of x_1 count");

    // The dot-product test.
    const auto normal = [](std::int64_t n, std::uint64_t key) { return random_normal({n}, {.key = key}, 0, 1, DType::float64); };
    const Tensor v = normal(3, 1), u = normal(2, 2);
    const double left = dot(forwards(v), u).item(), right = dot(v, backwards(u)).item();
    claim(session, std::abs(left - right) < 1e-13, "<J v, u> = {:.12f} = {:.12f} = <v, J^T u>", left, right);

    // The Taylor test, with a right and with a wrong derivative.
    say(session, "\nL = tanh(y_0 / 10) + y_1^2: the remainders for smaller and smaller h");
    const auto loss = [](const Tensors& in) {
      const Tensor at = f(in[0]);
      return Tensors{tanh(slice(at, 0, 0, 1) / 10) + square(slice(at, 0, 1, 2))};
    };
    const auto report = taylor_test(loss, {x}, session.world());
    say(session, "{}", to_text(report));
    claim(session, report.passed, "without a derivative h, with the gradient h^2, with the Hessian h^3");
    const auto forgetful = [&](const Tensors& in) {
      const Tensor at = f(in[0]);
      return Tensors{tanh(slice(at, 0, 0, 1) / 10) + slice(at, 0, 1, 2) * constant(slice(at, 0, 1, 2))};
    };
    const auto wrong = taylor_test(forgetful, {x}, session.world());
    claim(session, !wrong.passed, "with one factor of y_1^2 off the tape it does not: {}", wrong.message);

    // The cost: the gradient of one number with respect to 1000 takes one replay.
    const Tensor many = normal(1000, 3);
    int runs = 0;
    const auto g = [&](const Tensor& at) {
      ++runs;
      return sum(sin(at) * tanh(at));
    };
    Tape longer;
    const Tensor gradient = longer.gradient(g(many), {many})[0];
    const int backward_runs = runs;
    runs = 0;
    const double h = 1e-6, before = g(many).item();
    double worst = 0;
    auto values = many.to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double kept = std::exchange(values[i], values[i] + h);
      worst = std::max(worst, std::abs((g(vector(values)).item() - before) / h - gradient.to_vector()[i]));
      values[i] = kept;
    }
    say(session, "\n1000 derivatives: {} run of the function and one replay, or {} runs and differences", backward_runs, runs);
    claim(session, worst < 1e-5, "they agree to what differences can do, {:.0e}", worst);
  });
}
