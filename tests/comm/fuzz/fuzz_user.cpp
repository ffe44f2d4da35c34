// User-defined reductions: with and without a vjp, commutative and not.

#include <algorithm>
#include <array>
#include <limits>

#include "comm/collectives/user_reduction.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {
namespace {

// 2 x 2 matrices in rows of four: the product in the order of the ranks.
struct MatrixProduct {
  Tensor identity(const Tensor& like) const {
    std::vector<double> values;
    for (std::int64_t i = 0; i < like.dim(0); ++i) values.insert(values.end(), {1, 0, 0, 1});
    return from_vector(like.shape(), values, like.dtype());
  }
  Tensor combine(const Tensor& a, const Tensor& b) const {
    const auto at = [](const Tensor& x, int column) { return slice(x, 1, column, column + 1); };
    Tensors y;
    for (const int row : {0, 2})
      for (const int column : {0, 1}) y.push_back(at(a, row) * at(b, column) + at(a, row + 1) * at(b, column + 2));
    return concatenate(y, 1);
  }
};

// Combines terms of one row each, from the first rank on; no terms give the identity.
using Fold = std::function<Row(const std::vector<Row>&)>;

Row matrix_product(const std::vector<Row>& terms) {
  if (terms.empty()) return {{1}, {0}, {0}, {1}};
  Row y = terms[0];
  for (std::size_t n = 1; n < terms.size(); ++n) {
    const auto& x = terms[n];
    y = {y[0] * x[0] + y[1] * x[2], y[0] * x[1] + y[1] * x[3], y[2] * x[0] + y[3] * x[2], y[2] * x[1] + y[3] * x[3]};
  }
  return y;
}

// If all terms are minus infinity, no term has a weight.
Row log_sum_exp(const std::vector<Row>& terms) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double largest = -infinity;
  for (const auto& x : terms) largest = std::max(largest, x[0].v);
  if (largest == -infinity) return {{-infinity}};
  Jet sum;
  for (const auto& x : terms) sum = sum + exp(x[0] - largest);
  return {log(sum) - -largest};
}

// The five collectives for one reduction. An element of the reduction has `columns` numbers.
template <class R>
FuzzCase make_user(FuzzContext& f, std::string_view name, const R& reduction, std::int64_t columns, const Fold& fold) {
  f.only_floating(), f.no_half();
  const auto form = f.below(5);
  const auto rows = f.rows_of_ranks();
  const Shape shape{form == 2 ? total_of(rows) : f.rows(), columns};
  const int root = f.below(f.size());
  constexpr std::string_view forms[] = {"allreduce", "reduce", "reduce_scatter", "scan", "exscan"};
  FuzzCase c{.name = fmt::format("{} {}", forms[form], name),
             .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
             .exact = false};
  c.run = [=, comm = f.comm](const Tensors& x) -> Tensors {
    switch (form) {
      case 0: return {allreduce(x[0], comm, reduction)};
      case 1: return {reduce(x[0], comm, root, reduction)};
      case 2: return {reduce_scatter(x[0], comm, rows, reduction)};
      case 3: return {scan(x[0], comm, reduction)};
      default: return {exscan(x[0], comm, reduction)};
    }
  };
  c.expected = [=](const All& x) {
    return per_rank(x.size(), [&](std::size_t r) {
      const auto terms = form == 3 ? r + 1 : form == 4 ? r : x.size();
      Row y;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        std::vector<Row> list;
        for (std::size_t s = 0; s < terms; ++s)
          list.push_back(block_of(x[s][0], Rows(static_cast<std::size_t>(shape[0]), 1), static_cast<std::size_t>(i), columns));
        const auto row = fold(list);
        y.insert(y.end(), row.begin(), row.end());
      }
      if (form == 1 && r != static_cast<std::size_t>(root)) return Row(y.size());
      return form == 2 ? block_of(y, rows, r, columns) : y;
    });
  };
  return c;
}

FuzzCase make_matrices(FuzzContext& f) { return make_user(f, "2 x 2 matrix product", MatrixProduct{}, 4, matrix_product); }
FuzzCase make_log_sum_exp(FuzzContext& f) {
  auto c = make_user(f, "log-sum-exp", LogSumExp{}, 1, log_sum_exp);
  c.numbers = Numbers::quarters_and_minus_infinity;
  return c;
}

constexpr std::array makers{FuzzMaker{"matrix product", make_matrices}, FuzzMaker{"log-sum-exp", make_log_sum_exp}};

}  // namespace

std::span<const FuzzMaker> user_makers() { return makers; }

}  // namespace mpigrad::testing
