// Lesson 3: data parallelism is the adjoint of `replicate`.
//
//   build/examples/lessons/03_data_parallel             four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/03_data_parallel
//
// All ranks hold the same weights w and different samples. The loss is a sum over samples,
//
//   L(w) = 1/N sum_n l(w, x_n) = sum_r L_r(w),      L_r(w) = 1/N sum over the samples n of rank r,
//
// so dL/dw = sum_r dL_r/dw. Usually a program computes the terms and calls an allreduce by hand (or a wrapper or a hook does).
// But at some place the one w became P copies, one for each rank, which are then used differently: w_ = replicate(w), the matrix
// R = [I; I; ...; I]. It moves no data forwards. Its transpose R^T = [I I ... I] is the sum over ranks: the usual allreduce
// follows from naming the place where the copies were made.
//
// N is the *global* number of samples, and nothing is averaged over ranks. Averages of averages are wrong if two ranks have
// different numbers of samples, as the last lines show: there are 10 samples, and 4 ranks get 3, 3, 2 and 2.

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t samples = 10, features = 3, hidden = 5;

// Sum of the squared errors of a small network.
Tensor errors(const Tensor& x, const Tensor& t, const Tensor& w, const Tensor& v) {
  return sum(square(linear(tanh(linear(x, w)), v) - t));
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const auto normal = [](const Shape& shape, std::uint64_t key) {
      return random_normal(shape, {.key = key}, 0, 1, DType::float64);
    };
    const Tensor all_x = normal({samples, features}, 1), all_t = normal({samples, 1}, 2);
    const Tensor x = constant(my_rows(all_x, comm)), t = constant(my_rows(all_t, comm));
    Tensor w = normal({hidden, features}, 3), v = normal({1, hidden}, 4);

    const auto distributed = [&] {
      Tape tape;
      const Tensor share = errors(x, t, replicate(w, comm), replicate(v, comm)) * (1.0 / samples);
      return tape.gradient(share, {w, v});
    };
    const auto one_process = [&] {  // the whole batch, no communication
      Tape tape;
      return tape.gradient(errors(all_x, all_t, w, v) * (1.0 / samples), {w, v});
    };
    const auto local = [&](double count) {  // only this rank's samples
      Tape tape;
      return tape.gradient(errors(x, t, w, v) * (1.0 / count), {w, v});
    };

    const auto g = distributed(), expected = one_process();
    say_in_turn(session, fmt::format("rank {}: {} samples, |dL_r/dw| {:.6f}, through replicate |dL/dw| {:.6f}\n", session.rank(),
                                     x.dim(0), norm(local(samples)[0]), norm(g[0])));
    say(session, "one process, {} samples:                |dL/dw| {:.6f}", samples, norm(expected[0]));
    claim(session, distance(g[0], expected[0]) < 1e-13 && distance(g[1], expected[1]) < 1e-13,
          "the gradient on every rank is that of one process on the whole batch");

    // An outer tape records the replay of the inner one and shows the communication of the backward pass, which follows
    // automatically.
    Tape watch;
    {
      Tape tape;
      const Tensor share = errors(x, t, replicate(w, comm), replicate(v, comm));
      say(session, "\nforwards:  {}", names(tape.entries()));
      const auto before = watch.entries().size();
      tape.gradient(share, {w, v});
      const auto backward = std::span(watch.entries()).subspan(before);
      say(session, "backwards: {}", names(backward));
      claim(session, names(backward, true) == (session.ranks() > 1 ? "allreduce_invariant allreduce_invariant" : ""),
            "two weights, two reductions (on one rank nothing is to be done)\n");
    }

    // The mean over ranks of each rank's mean, which is the result of averaging gradients. A rank without samples adds nothing.
    if (session.ranks() <= samples) {
      const Tensor averaged = allreduce(local(double(x.dim(0)))[0], comm) * (1.0 / session.ranks());
      const bool even = samples % session.ranks() == 0;
      say(session, "average of the ranks' own averages: |dL/dw| {:.6f}, off by {:.1e}", norm(averaged),
          distance(averaged, expected[0]));
      claim(session, (distance(averaged, expected[0]) < 1e-13) == even, "it is right only if all ranks have the same number");
    }

    double first = 0, last = 0;
    for (int step = 0; step <= 100; ++step) {
      last = total(errors(x, t, w, v) * (1.0 / samples), comm);
      if (step == 0) first = last;
      if (step % 25 == 0) say(session, "step {:3}  loss {:.9f}", step, last);
      const auto gradients = distributed();
      w = w - 0.05 * gradients[0], v = v - 0.05 * gradients[1];
    }
    claim(session, last < 0.2 * first, "it trains");
  });
}
