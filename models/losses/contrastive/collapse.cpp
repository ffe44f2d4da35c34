#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "comm/collectives/collectives.h"
#include "models/evaluate/embeddings.h"
#include "models/evaluate/evaluate_set.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

// Reduces a symmetric matrix to tridiagonal form by Householder reflections: diagonal d, subdiagonal e, e[0] unused.
void to_tridiagonal(std::vector<double>& a, std::size_t n, std::vector<double>& d, std::vector<double>& e) {
  const auto at = [&](std::size_t i, std::size_t j) -> double& { return a[i * n + j]; };
  std::vector<double> v(n), p(n);
  for (std::size_t k = 0; k + 2 < n; ++k) {
    // Reflects x = a[k+1 .., k] to (alpha, 0, ...).
    double norm = 0;
    for (std::size_t i = k + 1; i < n; ++i) norm += at(i, k) * at(i, k);
    norm = std::sqrt(norm);
    const double first = at(k + 1, k), alpha = first > 0 ? -norm : norm;
    e[k + 1] = alpha;
    if (norm == 0) continue;
    double square = 0;
    for (std::size_t i = k + 1; i < n; ++i) v[i] = at(i, k) - (i == k + 1 ? alpha : 0), square += v[i] * v[i];
    if (square == 0) continue;
    // A <- H A H, H = 1 - 2 v v^T / |v|^2:  p = 2 A v / |v|^2,  w = p - (p.v / |v|^2) v,  A <- A - v w^T - w v^T
    double dot = 0;
#pragma omp parallel for if (n - k > 256)
    for (std::size_t i = k + 1; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = k + 1; j < n; ++j) sum += at(i, j) * v[j];
      p[i] = 2 * sum / square;
    }
    for (std::size_t i = k + 1; i < n; ++i) dot += p[i] * v[i];
    for (std::size_t i = k + 1; i < n; ++i) p[i] -= dot / square * v[i];
#pragma omp parallel for if (n - k > 256)
    for (std::size_t i = k + 1; i < n; ++i)
      for (std::size_t j = k + 1; j < n; ++j) at(i, j) -= v[i] * p[j] + p[i] * v[j];
  }
  for (std::size_t i = 0; i < n; ++i) d[i] = at(i, i);
  if (n > 1) e[n - 1] = at(n - 1, n - 2);
}

}  // namespace

// Bisection on the tridiagonal matrix T: the number of eigenvalues below x is the number of sign changes of the leading minors of
// T - x (Sturm). Slower but shorter than QR, and exact to rounding for any matrix.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, std::int64_t size) {
  require(size >= 0 && static_cast<std::int64_t>(matrix.size()) == size * size,
          "[eigenvalues] {} numbers for a matrix of {} rows", matrix.size(), size);
  const auto n = static_cast<std::size_t>(size);
  std::vector<double> d(n), e(n, 0.0), result(n);
  to_tridiagonal(matrix, n, d, e);
  double low = 0, high = 0;  // Gershgorin
  for (std::size_t i = 0; i < n; ++i) {
    const double radius = std::abs(e[i]) + (i + 1 < n ? std::abs(e[i + 1]) : 0);
    low = std::min(low, d[i] - radius), high = std::max(high, d[i] + radius);
  }
  require(std::isfinite(high - low), "[eigenvalues] the matrix is not finite");
  const double least = 1e-300 + 1e-16 * (high - low);
  const auto below = [&](double x) {
    std::size_t count = 0;
    double q = 1;
    for (std::size_t i = 0; i < n; ++i) {
      q = d[i] - x - (i > 0 ? e[i] * e[i] / q : 0);
      if (std::abs(q) < 1e-300) q = -1e-300;
      count += q < 0 ? 1 : 0;
    }
    return count;
  };
#pragma omp parallel for schedule(dynamic)
  for (std::size_t k = 0; k < n; ++k) {
    double a = low - least, b = high + least;
    while (b - a > least) {
      const double middle = a + (b - a) / 2;
      if (middle <= a || middle >= b) break;
      (below(middle) > k ? b : a) = middle;
    }
    result[k] = a + (b - a) / 2;
  }
  return result;
}

Collapse collapse(const Tensor& z, const Communicator& comm, std::int64_t most) {
  Untaped scope;
  const auto batch = inspect("collapse", {z}, comm, {.refuse_zeros = false});
  const auto n = static_cast<double>(batch.all), width = static_cast<double>(batch.width);
  const auto mean_of = [&](const Tensor& x) {
    auto sums = sum(x, {0}).to_vector();
    sum_over_ranks(sums, comm);
    for (auto& value : sums) value /= n;
    return sums;
  };
  const auto centred = [&](const Tensor& x) { return x - from_vector({1, batch.width}, mean_of(x), DType::float64); };
  const auto here = cast(batch.views[0], DType::float64);
  Collapse result;
  result.deviation = mean_of(square(centred(unit_rows(here))));
  for (auto& value : result.deviation) {
    value = std::sqrt(value);
    result.mean_deviation += value / width * std::sqrt(width);
  }
  const auto x = centred(here);
  const auto size = std::min(batch.all, batch.width);
  if (size > most) {
    result.effective_rank = std::nan("");
    return result;
  }
  // X^T X and X X^T have the same eigenvalues except zeros.
  std::vector<double> products;
  if (batch.all < batch.width) {
    const auto all = allgather(x, comm);
    products = matmul(all, all, {.transpose_b = true}).to_vector();
  } else {
    products = matmul(x, x, {.transpose_a = true}).to_vector();
    sum_over_ranks(products, comm);
  }
  auto squares = symmetric_eigenvalues(std::move(products), size);
  // Eigenvalues at the level of rounding count as zero: after centring, identical embeddings are rounding errors of arbitrary
  // rank.
  const double largest = squares.empty() ? 0 : squares.back();
  const double rounding = std::max(1e-24 * sum_over_ranks(sum(square(here)).item(), comm),
                                   static_cast<double>(size) * std::numeric_limits<double>::epsilon() * largest);
  for (auto& value : squares) value = value > rounding ? value : 0;
  double sum_of = 0, entropy = 0;
  for (const double value : squares) sum_of += std::sqrt(value);
  for (const double value : squares) {
    const double share = sum_of > 0 ? std::sqrt(value) / sum_of : 0;
    if (share > 0) entropy -= share * std::log(share);
  }
  result.effective_rank = sum_of > 0 ? std::exp(entropy) : 0;
  return result;
}

}  // namespace mpigrad::contrastive
