// Lesson 10: contrastive losses with wrong gradients as found in published code, and the size of the errors.
//
//   build/examples/lessons/10_wrong_gradients               four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/10_wrong_gradients
//
// Every program below has the right value of the loss, or nearly, and many train something. But the gradient is wrong: an
// allgather without its adjoint, a loss over local samples, a factor of P. wrong_losses.h has each in a few lines; here the
// gradient of each with respect to the weights of a network is compared with that of one process on the whole batch:
//
//   |g| / |true|    a mere factor acts like a learning rate: harmless for Adam, which divides by the size of the gradient, but
//                   not for SGD, and not for a weight decay that was tuned with it
//   cosine          below 1 the direction differs, which no learning rate repairs
//
// 10_wrong_training trains with each loss and shows the effects on the network; wrong_gradients.md has the table.

#include <map>

#include "examples/lessons/wrong_losses.h"
using namespace lesson;

namespace {

constexpr std::int64_t N = 64, features = 16, hidden = 32, width = 16;

double inner(const Tensors& a, const Tensors& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += dot(a[i], b[i]).item();
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const auto normal = [](const Shape& shape, std::uint64_t key, double deviation) {
      return random_normal(shape, {.key = key}, 0, deviation, DType::float64);
    };
    const Tensors weights{normal({hidden, features}, 1, 0.3), normal({width, hidden}, 2, 0.3)};
    const Tensor x = normal({N, features}, 3, 1), a = x + normal({N, features}, 4, 0.5), b = x + normal({N, features}, 5, 0.5);
    const auto embed = [](const Tensor& view, const Tensors& w) { return linear(tanh(linear(view, w[0])), w[1]); };

    // The gradient of a loss of this rank's rows on the ranks of `group`.
    const auto gradient = [&](const wrong::Loss& loss, const Communicator& group) {
      Tape tape;
      const Tensors w{replicate(weights[0], group), replicate(weights[1], group)};
      return tape.gradient(loss.share(embed(constant(my_rows(a, group)), w), embed(constant(my_rows(b, group)), w), group),
                           weights);
    };
    const auto losses = wrong::losses();
    const auto alone = comm.split(comm.rank(), 0);  // one process: only this rank, with all samples
    std::map<std::string, Tensors> truth;
    for (const auto& loss : losses)
      if (loss.name == loss.truth) truth[loss.name] = gradient(loss, alone);

    struct Numbers {
      double ratio = 0, cosine = 0;
    };
    std::map<std::string, Numbers> found;
    say(session, "{:36} |g|/|true|    cosine     of {} samples on {} ranks", "", N, session.ranks());
    for (const auto& loss : losses) {
      const auto g = gradient(loss, comm);
      const auto& right = truth[loss.truth];
      const double size = std::sqrt(inner(right, right)), own = std::sqrt(inner(g, g));
      auto& numbers = found[loss.name] = {own / size, inner(g, right) / (own * size)};
      say(session, "{:36} {:10.6f} {:9.6f}", loss.name, numbers.ratio, numbers.cosine);
    }

    const double ranks = session.ranks();
    const auto is = [&](const char* name, double ratio) {
      return std::abs(found[name].ratio - ratio) < 1e-9 * ratio && found[name].cosine > 1 - 1e-9;
    };
    const auto turned = [&](const char* name) { return (ranks == 1) == (found[name].cosine > 1 - 1e-9); };
    say(session, "");
    claim(session, is("InfoNCE, exact", 1) && is("Barlow Twins, exact", 1) && is("VICReg, exact", 1), "the right ones are exact");
    claim(session, is("full matrix, gradients summed", ranks) && is("Barlow Twins, full loss on all ranks", ranks),
          "a full loss on every rank gives {} times the gradient", ranks);
    claim(session, is("averaged instead of summed", 1 / ranks) && is("Barlow Twins, without adjoint", 1 / ranks),
          "averages, and Barlow Twins without the adjoint of its sum, are 1/{} of it", ranks);
    claim(session, found["gather without gradient"].cosine < 0.999, "columns without a gradient turn it, on one rank, too");
    claim(session,
          turned("the same, own columns put back") && turned("local negatives only") && turned("VICReg, full loss on all ranks"),
          "the others turn it as soon as there is a second rank");
  });
}
