// Lesson 9: Hessian-vector products across ranks.
//
//   build/examples/lessons/09_hessian_vector            four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/09_hessian_vector
//
// The Hessian H of a loss with respect to n weights has n^2 elements, but H v costs only two gradients: H v = d/dw <g(w), v> with
// g = dL/dw. The first gradient is recorded (Record::yes), and a scalar computed from it is differentiated again. Across ranks
// nothing changes, if the adjoints themselves have right derivatives. With R the copy of the weights to all ranks, l_r the share
// of rank r, H_r its Hessian,
//
//   g   = R^T (l_0', ..., l_{P-1}') = sum_r l_r'(w)                 allreduce, forwards in the second sweep
//   H v = R^T diag(H_0, ..., H_{P-1}) R v = sum_r H_r v             so its adjoint must be R: a copy
//
// The adjoint of replicate = R is allreduce_invariant = R^T, whose adjoint is R again: two ops that are each other's transpose.
// In many libraries the backward pass of R calls the plain allreduce R R^T. First derivatives do not show the difference: the
// values are the same. But the adjoint of R R^T is R R^T, and the second sweep sums P equal cotangents: P H v. JAX had the same
// problem when it gave `psum` a type that says whether a value varies over devices (design note 17111).

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t samples = 10, features = 3, hidden = 4;

// The tempting version, as a user-defined op: right once, wrong twice.
struct NaiveReplicate {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "naive_replicate", .communicates = true}; }
  std::vector<TensorType> infer(std::span<const Tensor> in) const { return {in[0].type()}; }
  Tensor view(std::span<const Tensor> in) const { return in[0].as_variable(); }
  std::vector<Tensor> vjp(const Replay&, std::span<const Tensor> g) const { return {allreduce(g[0], comm)}; }
};

struct Sweep {
  Tensor gradient, product;  // g and H v
};
Sweep differentiate_twice(const std::function<Tensor(const Tensor&)>& loss, const Tensor& w, const Tensor& v) {
  Tape tape;
  const Tensor g = tape.gradient(loss(w), {w}, Record::yes)[0];
  return {g, tape.gradient(dot(g, v), {w})[0]};
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const auto normal = [](const Shape& shape, std::uint64_t key) {
      return random_normal(shape, {.key = key}, 0, 1, DType::float64);
    };
    const Tensor all_x = normal({samples, features}, 1), all_t = normal({samples, hidden}, 2);
    const Tensor x = constant(my_rows(all_x, comm)), t = constant(my_rows(all_t, comm));
    const Tensor w = normal({hidden, features}, 3), v = normal({hidden, features}, 4);
    const auto error = [](const Tensor& in, const Tensor& target, const Tensor& weights) {
      return sum(square(tanh(linear(in, weights)) - target)) * (1.0 / samples);
    };
    const auto share = [&](const Tensor& at) { return error(x, t, replicate(at, comm)); };

    const auto one = differentiate_twice([&](const Tensor& at) { return error(all_x, all_t, at); }, w, v);
    const auto right = differentiate_twice(share, w, v);
    const auto naive =
        differentiate_twice([&](const Tensor& at) { return error(x, t, apply(NaiveReplicate{comm}, {at})); }, w, v);

    // Without a second sweep: a central difference of gradients.
    const double h = 1e-5;
    const auto gradient = [&](const Tensor& at) {
      Tape tape;
      return tape.gradient(share(at), {at})[0];
    };
    const Tensor difference = (gradient(w + h * v) - gradient(w - h * v)) / (2 * h);

    say(session, "{:28} {:>12} {:>12} {:>12}", "", "|g|", "|H v|", "<v, H v>");
    const auto row = [&](const std::string& name, const Sweep& s) {
      say(session, "{:28} {:12.8f} {:12.8f} {:12.8f}", name, norm(s.gradient), norm(s.product), dot(v, s.product).item());
    };
    row("one process", one);
    row(fmt::format("{} ranks, replicate", session.ranks()), right);
    row("central difference", {right.gradient, difference});
    row("vjp by a plain allreduce", naive);
    say(session, "");

    const double P = session.ranks(), size = norm(one.product);
    claim(session, distance(right.gradient, one.gradient) < 1e-13 && distance(right.product, one.product) < 1e-12 * size,
          "g and H v through replicate are those of one process, on every rank");
    claim(session, distance(right.product, difference) < 1e-7 * size, "and agree with finite differences to {:.1e}",
          distance(right.product, difference) / size);
    claim(session, distance(naive.gradient, one.gradient) < 1e-13, "a plain allreduce in the vjp: g is right,");
    claim(session, distance(naive.product, P * one.product) < 1e-12 * P * size, "H v is {:.6f} times too large",
          norm(naive.product) / size);

    // H is symmetric, also across ranks: <u, H v> = <v, H u>.
    const Tensor u = normal({hidden, features}, 5);
    const double uHv = dot(u, right.product).item(), vHu = dot(v, differentiate_twice(share, w, u).product).item();
    claim(session, std::abs(uHv - vHu) < 1e-12 * size, "<u, H v> = {:.12f} = <v, H u>", uHv);
  });
}
