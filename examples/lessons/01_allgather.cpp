// Lesson 1: an allgather, and its adjoint.
//
//   build/examples/lessons/01_allgather                          three ranks, threads of one process
//   build/examples/lessons/01_allgather --ranks 5                five
//   mpiexec -n 2 build/examples/lessons/01_allgather             processes
//
// Write the data of all ranks on top of each other: one long vector x = (x_0, ..., x_{P-1}). After an allgather every rank holds
// all of it, so y = (x, x, ..., x). That is a linear map, and like every linear map a matrix:
//
//       [ I ]                                                [ y_0     ]
//   A = [ I ]   P blocks, each the identity;        y = A x = [ ...     ]
//       [ I ]                                                [ y_{P-1} ]
//
// Reverse-mode differentiation needs only the transpose. If L is a function of y and ybar = dL/dy, the chain rule says
//
//   xbar = A^T ybar = [ I I I ] ybar,      xbar_r = sum over ranks s of block r of ybar_s:
//
// every rank that got a copy of x_r sends back the cotangent of that copy, and rank r gets their sum. MPI has this operation:
// reduce_scatter. One line, the dot-product test, checks A^T: <A x, ybar> = <x, A^T ybar> for random x and ybar. The ybar must
// differ between ranks, as the end of the lesson shows.

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 3, [](Session& session) {
    const auto& comm = session.world();
    const auto P = session.ranks(), rank = session.rank();
    // One number per rank. `unit`: this rank's part of a stacked vector that is 1 in one place and 0 elsewhere.
    const auto unit = [&](std::int64_t length, std::int64_t place) {
      std::vector<double> values(static_cast<std::size_t>(length), 0.0);
      if (place / length == rank) values[static_cast<std::size_t>(place % length)] = 1;
      return from_vector({length}, values, DType::float64);
    };
    const auto A = [&](const Tensor& x) { return allgather(x, comm); };
    const auto A_transposed = [&](const Tensor& ybar) {  // computed by the tape
      const Tensor x = zeros({1}, DType::float64);
      Tape tape;
      const Tensor y = A(x);
      return tape.vjp({y}, {ybar}, {x})[0];
    };

    // The function maps unit vector j to column j of its matrix. P + P^2 communications print the whole matrices.
    std::vector<std::vector<double>> columns, columns_transposed;
    for (int j = 0; j < P; ++j) columns.push_back(allgather(A(unit(1, j)), comm).to_vector());
    for (int j = 0; j < P * P; ++j) columns_transposed.push_back(allgather(A_transposed(unit(P, j)), comm).to_vector());

    const auto print = [&](const char* name, const auto& matrix, std::size_t rows_of_rank, std::size_t columns_of_rank) {
      say(session, "{}: {} x {}", name, matrix[0].size(), matrix.size());
      for (std::size_t i = 0; i < matrix[0].size(); ++i) {
        std::string line = i % rows_of_rank == 0 ? fmt::format("  rank {}  ", i / rows_of_rank) : "          ";
        for (std::size_t j = 0; j < matrix.size(); ++j)
          line += fmt::format("{}{} ", j > 0 && j % columns_of_rank == 0 ? "| " : "", matrix[j][i]);
        say(session, "{}", line);
      }
    };
    const auto p = static_cast<std::size_t>(P);
    if (P <= 6) print("A, the allgather", columns, p, 1);
    if (P <= 6) print("its adjoint, as the tape computes it", columns_transposed, 1, p);
    bool transposed = true;
    for (std::size_t i = 0; i < p * p; ++i)
      for (std::size_t j = 0; j < p; ++j) transposed = transposed && columns_transposed[i][j] == columns[j][i];
    claim(session, transposed, "the adjoint is the transpose, element by element");

    // The dot-product test. Inner products of stacked vectors are sums over ranks.
    const auto inner = [&](const Tensor& a, const Tensor& b) { return total(dot(a, b), comm); };
    const auto stream = static_cast<std::uint64_t>(rank);
    const Tensor x = random_normal({1}, {.key = 1, .stream = stream}, 0, 1, DType::float64);
    const Tensor ybar = random_normal({P}, {.key = 2, .stream = stream}, 0, 1, DType::float64);
    const double left = inner(A(x), ybar), right = inner(x, A_transposed(ybar));
    claim(session, std::abs(left - right) < 1e-13 * (1 + std::abs(left)), "<A x, ybar> = {:.12f} = {:.12f} = <x, A^T ybar>", left,
          right);
    claim(session, distance(A_transposed(ybar), reduce_scatter(ybar, comm, Rows(p, 1))) < 1e-14, "A^T is reduce_scatter");

    // A plausible wrong adjoint: P times one's own block. Equal cotangents on all ranks do not detect it.
    const auto wrong = [&](const Tensor& g) { return double(P) * slice(g, 0, rank, rank + 1); };
    const Tensor same = ones({P}, DType::float64);
    say(session, "A wrong adjoint, P times one's own block:");
    say(session, "  all cotangents 1:    <A x, ybar> = {:.6f}, <x, B ybar> = {:.6f}", inner(A(x), same), inner(x, wrong(same)));
    say(session, "  random cotangents:   <A x, ybar> = {:.6f}, <x, B ybar> = {:.6f}", left, inner(x, wrong(ybar)));
    claim(session, std::abs(inner(A(x), same) - inner(x, wrong(same))) < 1e-14 * P * P, "equal cotangents do not find the error");
    claim(session, P == 1 || std::abs(left - inner(x, wrong(ybar))) > 1e-3, "random ones do, with more than one rank");
  });
}
