// Lesson 2: the loss is the sum over ranks, or where the factor of P comes from.
//
//   build/examples/lessons/02_sum_over_ranks            four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/02_sum_over_ranks
//
// P ranks hold one number x_r each and want the gradient of L = s^2, where s = x_0 + ... + x_{P-1}. By hand: dL/dx_r = 2 s. On
// every rank one writes
//
//   y = allreduce(x);   loss = y * y;   tape.gradient(loss, {x})
//
// and finds P times that. This is not an error. There are P copies of the loss, one on each rank, and the gradient is that of
// their *sum* over ranks: P s^2. Only this rule works for all programs: for a loss on one rank only, for P different losses, and
// for a share of the loss on each rank, the sum is what is meant. As matrices at P = 2: with R = [1; 1], which copies a value to
// two ranks, and R^T = [1 1], which adds,
//
//   allreduce = R R^T = [1 1; 1 1] is its own transpose, and (R R^T) [1; 1] = [2; 2].
//
// A program that means one value s that is stored P times says so by its type: allreduce_invariant = R^T ends in a space where
// the value counts once, and its adjoint R copies the cotangent and adds nothing. To add such a value to shares of a loss, which
// vary from rank to rank, write once(value): the value on rank 0 and 0 elsewhere. The library never divides by P implicitly.

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const double P = session.ranks();
    const Tensor x = full({}, session.rank() + 1, DType::float64);  // 1, 2, ..., P
    const double s = total(x, comm);
    say(session, "{} ranks hold 1 to {}: s = {}, L = s^2 = {}, dL/dx = 2 s = {} by hand\n", P, P, s, s * s, 2 * s);

    // The sum of the losses of all ranks, and its gradient: by the tape, and by a central difference in x_0.
    using Loss = std::function<Tensor(const Tensor&)>;
    const auto show = [&](const char* text, const Loss& loss, double factor) {
      const auto objective = [&](const Tensor& at) {
        const Tensor mine = loss(at);
        return mine ? total(mine, comm) : total(zeros({}, DType::float64), comm);
      };
      Tape tape;
      const double gradient = tape.gradient(loss(x), {x})[0].item();
      const Tensor step = full({}, session.rank() == 0 ? 1e-3 : 0, DType::float64);
      const double difference = (objective(x + step) - objective(x - step)) / 2e-3;
      say(session, "{:44} sum over ranks {:6}   gradient {:4} = {} x 2 s", text, objective(x), gradient, gradient / (2 * s));
      require(std::abs(gradient - factor * 2 * s) < 1e-12 * gradient, "[lesson] {}: gradient {}", text, gradient);
      return std::abs(difference - gradient) < 1e-8 * gradient;
    };
    bool as_handed_in = show(
        "square(allreduce(x)) on every rank", [&](const Tensor& v) { return square(allreduce(v, comm)); }, P);
    // The right forms. The first one gives the same value on all ranks, and its type says so: it counts once.
    show(
        "square(allreduce_invariant(x)) on every rank", [&](const Tensor& v) { return square(allreduce_invariant(v, comm)); }, 1);
    as_handed_in &= show(
        "once(square(allreduce_invariant(x)))", [&](const Tensor& v) { return once(square(allreduce_invariant(v, comm)), comm); },
        1);
    as_handed_in &= show(
        "square(reduce(x)) on rank 0 only",
        [&](const Tensor& v) {
          const Tensor y = reduce(v, comm, 0);
          return session.rank() == 0 ? square(y) : Tensor();
        },
        1);
    as_handed_in &= show(
        "x * allreduce(x): this rank's share of s^2", [&](const Tensor& v) { return v * allreduce(v, comm); }, 1);
    say(session, "The second one is typed: one value, stored {} times, that counts once.\n", P);
    claim(session, as_handed_in, "untyped, the gradient is that of the sum of the losses of all ranks (central differences)");

    // The same trap in every training program: a penalty on weights that all ranks share. The data's loss is a share on each
    // rank, computed from replicate(w). The penalty is one number: computed on every rank from its copy of w, it counts P times;
    // computed from w itself, its type says that it is replicated, and once() makes it a share.
    const Tensor w = full({}, 3, DType::float64);
    const auto penalised = [&](bool counts_once) {
      Tape tape;
      const Tensor data_share = square(replicate(w, comm) - x);  // (w - x_r)^2
      const Tensor penalty = counts_once ? once(0.5 * square(w), comm) : 0.5 * square(replicate(w, comm));
      return tape.gradient(data_share + penalty, {w})[0].item();
    };
    const double data = 2 * (P * 3 - s);
    say(session, "w = 3, sum_r (w - x_r)^2 + w^2 / 2: the penalty's part of the gradient should be w");
    say(session, "  data_share + penalty(replicate(w))   {} + {}", data, penalised(false) - data);
    say(session, "  data_share + once(penalty(w))        {} + {}", data, penalised(true) - data);
    claim(session, penalised(true) == data + 3 && penalised(false) == data + P * 3,
          "once(penalty(w)) counts once, the other one P = {} times", P);
  });
}
