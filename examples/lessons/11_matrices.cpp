// Lesson 11: bcast, reduce, scatter, gather and scan as matrices.
//
//   build/examples/lessons/11_matrices              three ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/11_matrices
//
// Lesson 1 wrote an allgather as a matrix. Every linear operation of MPI is a matrix, and a drawing of the matrix shows its
// adjoint: turn the page on its side. With the ranks' numbers on top of each other,
//
//   bcast     a column of ones at the root        its transpose, a row of ones at the root, is reduce
//   scatter   the identity, cut between ranks     its transpose, the same identity seen from the other side, is gather
//   scan      ones on and below the diagonal      its transpose is a scan from the last rank to the first
//   shift     a permutation                       its transpose is the shift back
//   alltoall  a permutation of blocks             its own transpose, if all blocks are equal
//
// Unused inputs have a column of zeros: bcast ignores all x but the root's, so all other ranks get the cotangent 0, which is not
// the same as no cotangent. Outputs that are not filled have a row of zeros: reduce gives 0 on all ranks but the root, and
// cotangents that arrive there are ignored. Forgetting one of these is the commonest mistake in adjoints written by hand.

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

using Matrix = std::vector<std::vector<double>>;  // [row][column]
using Function = std::function<Tensor(const Tensor&)>;
using Sizes = std::vector<std::int64_t>;  // numbers of elements on each rank

// This rank's part of the stacked vector that is 1 in one place and 0 elsewhere.
Tensor unit(const Session& session, const Sizes& sizes, std::size_t place) {
  std::int64_t begin = 0;
  for (int r = 0; r < session.rank(); ++r) begin += sizes[static_cast<std::size_t>(r)];
  std::vector<double> values(static_cast<std::size_t>(sizes[static_cast<std::size_t>(session.rank())]), 0.0);
  const auto here = static_cast<std::int64_t>(place) - begin;
  if (here >= 0 && here < static_cast<std::int64_t>(values.size())) values[static_cast<std::size_t>(here)] = 1;
  return from_vector({static_cast<std::int64_t>(values.size())}, values, DType::float64);
}
std::size_t sum_of(const Sizes& sizes) {
  return static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
}

// The function maps unit vector j to column j.
Matrix matrix(const Session& session, const Function& function, const Sizes& from, const Sizes& to) {
  Matrix rows(sum_of(to));
  for (std::size_t j = 0; j < sum_of(from); ++j) {
    const auto column = allgather(function(unit(session, from, j)), session.world(), to).to_vector();
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(column[i]);
  }
  return rows;
}
Matrix transposed(const Matrix& m) {
  Matrix result(m.empty() ? 0 : m[0].size());
  for (const auto& row : m)
    for (std::size_t j = 0; j < row.size(); ++j) result[j].push_back(row[j]);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 3, [](Session& session) {
    const auto& comm = session.world();
    const auto P = static_cast<std::size_t>(session.ranks());
    const int root = session.ranks() / 2;
    const Sizes one(P, 1), all(P, session.ranks());
    Sizes at_root(P, 0);
    at_root[static_cast<std::size_t>(root)] = session.ranks();

    // Draws A and the adjoint as computed by the tape; claims that it is A^T, and that it equals `other`.
    const auto show = [&](const char* name, const char* adjoint, const Function& A, const Sizes& from, const Sizes& to,
                          const Function& other) {
      const Function by_tape = [&](const Tensor& ybar) {
        const Tensor x = zeros({from[static_cast<std::size_t>(session.rank())]}, DType::float64);
        Tape tape;
        const Tensor y = A(x);
        return tape.vjp({y}, {ybar}, {x})[0];
      };
      const Matrix forwards = matrix(session, A, from, to), backwards = matrix(session, by_tape, to, from);
      if (P <= 4) {
        say(session, "{:<{}} {}", name, 2 * forwards[0].size() + 8, adjoint);
        for (std::size_t i = 0; i < std::max(forwards.size(), backwards.size()); ++i) {
          std::string line = "  ";
          for (const auto* m : {&forwards, &backwards}) {
            std::string cells;
            if (i < m->size())
              for (const double value : (*m)[i]) cells += value == 0 ? " ." : fmt::format(" {}", value);
            line += fmt::format("{:<{}}", cells, 2 * forwards[0].size() + 7);
          }
          say(session, "{}", line.substr(0, line.find_last_not_of(' ') + 1));
        }
      }
      claim(session, backwards == transposed(forwards), "the adjoint of {} is its transpose,", name);
      claim(session, backwards == matrix(session, other, to, from), "which is {}", adjoint);
      say(session, "");
    };

    const auto B = [&](const Tensor& x) { return bcast(x, comm, root); };
    const auto R = [&](const Tensor& x) { return reduce(x, comm, root); };
    const auto S = [&](const Tensor& x) { return scatter(x, comm, root); };
    const auto G = [&](const Tensor& x) { return gather(x, comm, root); };
    say(session, "the root is rank {}\n", root);
    show("bcast", "reduce", B, one, one, R);
    show("reduce", "bcast", R, one, one, B);
    show("scatter", "gather", S, at_root, one, G);
    show("gather", "scatter", G, one, at_root, S);
    // Ranks in the reverse order: scans on this communicator begin at the last rank.
    const Communicator mirrored = comm.split(0, -session.rank());
    show(
        "scan", "scan from the last rank to the first", [&](const Tensor& x) { return scan(x, comm); }, one, one,
        [&](const Tensor& x) { return scan(x, mirrored); });
    show(
        "exscan", "exscan from the last rank to the first", [&](const Tensor& x) { return exscan(x, comm); }, one, one,
        [&](const Tensor& x) { return exscan(x, mirrored); });
    show(
        "shift by 1", "shift by -1", [&](const Tensor& x) { return shift(x, comm, 1); }, one, one,
        [&](const Tensor& x) { return shift(x, comm, -1); });
    if (P <= 3) {
      const Rows rows(P, 1);
      const auto T = [&](const Tensor& x) { return alltoall(x, comm, rows, rows); };
      show("alltoall", "alltoall", T, all, all, T);
    }

    // The matrix also shows which values are used: columns show whose x is used, rows whose y is filled.
    const auto count = [&](const Matrix& m) {
      return std::count_if(m.begin(), m.end(),
                           [](const auto& row) { return std::none_of(row.begin(), row.end(), [](double v) { return v != 0; }); });
    };
    const Matrix b = matrix(session, B, one, one);
    claim(session, count(b) == 0 && count(transposed(b)) == session.ranks() - 1,
          "bcast fills every y and uses one x: {} columns of zeros, {} cotangents that are 0", session.ranks() - 1,
          session.ranks() - 1);
  });
}
