// Lesson 8: a contrastive loss, whose gradient is wrong if a gather has no adjoint.
//
//   build/examples/lessons/08_contrastive               four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/08_contrastive
//
// N pairs of views (a_n, b_n) are embedded, za = f(a; w), zb = f(b; w), and each view is to find its partner among all N:
//
//   L = -1/(2N) sum_n [ log softmax_m(<za_n, zb_m> / tau)_n + log softmax_m(<zb_n, za_m> / tau)_n ]        (InfoNCE, both ways)
//
// More negatives m are better, so the batch is spread over ranks and every rank needs the others' embeddings: an allgather. Rank
// r computes its rows n against all columns m, its share of L. Six common programs:
//
//   exact              z_all = allgather(z), whose adjoint is reduce_scatter: a column's cotangents return from all ranks
//   gather, no grad    MPI or NCCL called outside the tape: columns are constants and get no cotangents
//   own put back       the same, but a rank's own columns replace the constants
//   local negatives    no gather: softmax over the rank's own samples, which is another loss
//   full, plain        every rank computes all N rows from allgather(z) and contributes all of L: P copies of L (lesson 2)
//   full, invariant    the same with allgather_invariant: L is one value, stored P times, and counts once
//
// The numbers compare the gradient with respect to the weights with that of one process: ratio of the norms, cosine, and relative
// error. Non-additive losses over ranks, including this one, are the subject of K. Krajsek, "Adjoint MPI for Non-Additive
// Separable Loss Functions", ISC High Performance 2023.

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t N = 16, features = 8, width = 8;
constexpr double tau = 0.1;

Tensor embed(const Tensor& x, const Tensor& w) {
  const Tensor z = tanh(linear(x, w));
  return z / sqrt(sum(square(z), {1}, true));
}
// Rows against columns; the partner of row i is column first + i.
Tensor info_nce(const Tensor& rows, const Tensor& columns, std::int64_t first) {
  const Tensor partner = arange(columns.dim(0));
  const Tensor mine = constant(one_hot(slice(partner, 0, first, first + rows.dim(0)), columns.dim(0), DType::float64));
  return -sum(log_softmax(matmul(rows, columns, {.transpose_b = true}) / tau) * mine) / double(2 * N);
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const auto normal = [](const Shape& shape, std::uint64_t key) {
      return random_normal(shape, {.key = key}, 0, 1, DType::float64);
    };
    const Tensor x = normal({N, features}, 1), w = 0.5 * normal({width, features}, 2);
    const Tensor view_a = x + 0.5 * normal({N, features}, 3), view_b = x + 0.5 * normal({N, features}, 4);
    const Tensor a = constant(my_rows(view_a, comm)), b = constant(my_rows(view_b, comm));
    const auto first = balanced_cuts(N, comm.size())[static_cast<std::size_t>(comm.rank())];

    Tape whole;
    const Tensor all_a = embed(view_a, w), all_b = embed(view_b, w);
    const Tensor truth = whole.gradient(info_nce(all_a, all_b, 0) + info_nce(all_b, all_a, 0), {w})[0];

    struct Numbers {
      double ratio = 0, cosine = 0;
    };
    const auto compare = [&](const char* name, const std::function<Tensor(const Tensor&, const Tensor&)>& share) {
      Tape tape;
      const Tensor w_ = replicate(w, comm);
      const Tensor g = tape.gradient(share(embed(a, w_), embed(b, w_)), {w})[0];
      const Numbers found{norm(g) / norm(truth), dot(g, truth).item() / (norm(g) * norm(truth))};
      say(session, "{:18} {:9.6f} {:9.6f} {:15.2e}", name, found.ratio, found.cosine, norm(g - truth) / norm(truth));
      return found;
    };
    const auto both_ways = [&](const Tensor& za, const Tensor& zb, const Tensor& columns_a, const Tensor& columns_b,
                               std::int64_t at) { return info_nce(za, columns_b, at) + info_nce(zb, columns_a, at); };
    say(session, "{} pairs on {} ranks  |g|/|true|    cosine |g-true|/|true|", N, session.ranks());
    const auto exact = compare("exact", [&](const Tensor& za, const Tensor& zb) {
      return both_ways(za, zb, allgather(za, comm), allgather(zb, comm), first);
    });
    const auto cut = compare("gather, no grad", [&](const Tensor& za, const Tensor& zb) {
      return both_ways(za, zb, allgather(constant(za), comm), allgather(constant(zb), comm), first);
    });
    const auto own = compare("own put back", [&](const Tensor& za, const Tensor& zb) {
      const auto columns = [&](const Tensor& z) {
        const Tensor others = allgather(constant(z), comm);
        return concatenate({slice(others, 0, 0, first), z, slice(others, 0, first + z.dim(0), N)}, 0);
      };
      return both_ways(za, zb, columns(za), columns(zb), first);
    });
    const auto local =
        compare("local negatives", [&](const Tensor& za, const Tensor& zb) { return both_ways(za, zb, za, zb, 0); });
    const auto plain = compare("full, plain", [&](const Tensor& za, const Tensor& zb) {
      const Tensor ya = allgather(za, comm), yb = allgather(zb, comm);
      return both_ways(ya, yb, ya, yb, 0);
    });
    const auto invariant = compare("full, invariant", [&](const Tensor& za, const Tensor& zb) {
      const Tensor ya = allgather_invariant(za, comm), yb = allgather_invariant(zb, comm);
      return both_ways(ya, yb, ya, yb, 0);
    });

    const auto is = [](const Numbers& n, double ratio) {
      return std::abs(n.ratio - ratio) < 1e-12 * ratio && n.cosine > 1 - 1e-12;
    };
    say(session, "");
    claim(session, is(exact, 1) && is(invariant, 1), "rows with an allgather, and the full matrix typed invariant, are exact");
    claim(session, is(plain, session.ranks()), "the full matrix on every rank gives {} times the gradient", session.ranks());
    claim(session, cut.ratio < 0.8 && cut.cosine < 0.99, "without the columns' cotangents half the gradient is missing");
    claim(session, (session.ranks() == 1) == is(own, 1), "putting one's own columns back repairs it on one rank only");
    claim(session, (session.ranks() == 1) == is(local, 1), "local negatives are another loss, unless there is one rank");
  });
}
