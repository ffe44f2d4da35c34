#include "models/train/ridge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/base/error.h"

namespace mpigrad {
namespace {

constexpr std::size_t parallel_from = 1 << 14;  // features of all samples; below, a second thread does not pay

// L with L L^T = a + penalty I, both [n, n]; only lower halves are read and written.
std::vector<double> factor_of(std::vector<double> a, std::size_t n, double penalty) {
  for (std::size_t j = 0; j < n; ++j) {
    a[j * n + j] += penalty;
    for (std::size_t i = j; i < n; ++i) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      // Rounding may make the sum negative if the matrix is nearly singular.
      a[i * n + j] = i == j ? std::sqrt(std::max(sum, std::numeric_limits<double>::epsilon() * penalty)) : sum / a[j * n + j];
    }
  }
  return a;
}

// L^-1 b, in place, b [n, Columns].
template <std::size_t Columns>
void forward(const std::vector<double>& l, std::size_t n, double* b) {
  for (std::size_t i = 0; i < n; ++i) {
    std::array<double, Columns> sum;
    std::copy_n(b + i * Columns, Columns, sum.begin());
    for (std::size_t k = 0; k < i; ++k)
#pragma omp simd
      for (std::size_t c = 0; c < Columns; ++c) sum[c] -= l[i * n + k] * b[k * Columns + c];
    for (std::size_t c = 0; c < Columns; ++c) b[i * Columns + c] = sum[c] / l[i * n + i];
  }
}
// L^-T b, in place.
void backward(const std::vector<double>& l, std::size_t n, double* b) {
  for (std::size_t i = n; i-- > 0;) {
    b[i] /= l[i * n + i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= l[i * n + k] * b[i];
  }
}

// Shifts the columns of x [rows, columns] to mean 0, and with `scale` scales them to variance 1.
std::vector<double> centre(std::vector<double>& x, std::size_t columns, std::vector<double>* scale) {
  const auto rows = x.size() / columns;
  std::vector<double> mean(columns), squares(columns);
  for (std::size_t i = 0; i < x.size(); ++i) mean[i % columns] += x[i] / static_cast<double>(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= mean[i % columns], squares[i % columns] += x[i] * x[i];
  if (!scale) return mean;
  for (std::size_t j = 0; j < columns; ++j) {
    const double deviation = std::sqrt(squares[j] / static_cast<double>(rows));
    scale->push_back(deviation > 1e-12 * std::abs(mean[j]) ? deviation : 1);
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= (*scale)[i % columns];
  return mean;
}

// The number of rows of a that are solved together.
constexpr std::size_t rows_at_once = 8;

// 1 / rows + |L^-1 a_r|^2 of each row r of a [rows, n]. columns: scratch, as large as a with its rows rounded up to a multiple of
// `rows_at_once`.
std::vector<double> leverages(const std::vector<double>& l, const std::vector<double>& a, std::size_t n,
                              std::vector<double>& columns) {
  const auto rows = a.size() / n;
  std::vector<double> result(rows, 1 / static_cast<double>(rows));
#pragma omp parallel for schedule(static) if (rows * n >= parallel_from)
  for (std::size_t first = 0; first < rows; first += rows_at_once) {
    const auto count = std::min(rows_at_once, rows - first);
    double* const b = columns.data() + first * n;  // [n, rows_at_once]
    for (std::size_t c = 0; c < count; ++c)
      for (std::size_t i = 0; i < n; ++i) b[i * rows_at_once + c] = a[(first + c) * n + i];
    forward<rows_at_once>(l, n, b);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < count; ++c) result[first + c] += b[i * rows_at_once + c] * b[i * rows_at_once + c];
  }
  return result;
}

}  // namespace

std::vector<double> Ridge::operator()(std::span<const double> x) const {
  const auto n = mean.size(), targets = offset.size();
  require(n > 0 && x.size() % n == 0, "[ridge] {} values are not samples of {} features", x.size(), n);
  std::vector<double> y;
  for (std::size_t row = 0; row < x.size(); row += n)
    for (std::size_t t = 0; t < targets; ++t) {
      double sum = offset[t];
      for (std::size_t j = 0; j < n; ++j) sum += weight[t * n + j] * (x[row + j] - mean[j]) / scale[j];
      y.push_back(sum);
    }
  return y;
}

Ridge fit_ridge(std::span<const double> x, std::span<const double> y, std::int64_t samples) {
  const auto rows = static_cast<std::size_t>(samples);
  require(samples >= 2, "[ridge] needs two samples, got {}", samples);
  require(!x.empty() && !y.empty() && x.size() % rows == 0 && y.size() % rows == 0,
          "[ridge] {} features and {} targets are not those of {} samples", x.size(), y.size(), samples);
  for (const auto& values : {x, y})
    require(std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }),
            "[ridge] a feature or a target is not finite");
  const auto n = x.size() / rows, targets = y.size() / rows;
  Ridge best;
  std::vector<double> a(x.begin(), x.end()), b(y.begin(), y.end());
  best.mean = centre(a, n, &best.scale), best.offset = centre(b, targets, nullptr);
  best.weight.resize(targets * n), best.penalty.resize(targets);

  // a^T a and a^T b; each thread computes some lines and adds the rows in order.
  std::vector<double> gram(n * n), moments(targets * n);
  constexpr std::size_t lines = 8;
#pragma omp parallel for schedule(dynamic) if (rows * n >= parallel_from)
  for (std::size_t first = 0; first < n; first += lines)
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = first; i < std::min(first + lines, n); ++i) {
        const double value = a[r * n + i];
        for (std::size_t j = 0; j <= i; ++j) gram[i * n + j] += value * a[r * n + j];
        for (std::size_t t = 0; t < targets; ++t) moments[t * n + i] += value * b[r * targets + t];
      }
  std::vector<double> least(targets, std::numeric_limits<double>::infinity()), errors(rows),
      columns((rows + rows_at_once - 1) / rows_at_once * rows_at_once * n);
  for (int exponent = -5; exponent <= 5; ++exponent) {
    const double penalty = std::pow(10, exponent);
    const auto l = factor_of(gram, n, penalty);
    const auto leverage = leverages(l, a, n, columns);
    for (std::size_t t = 0; t < targets; ++t) {
      std::vector<double> w(moments.begin() + static_cast<std::ptrdiff_t>(t * n),
                            moments.begin() + static_cast<std::ptrdiff_t>((t + 1) * n));
      forward<1>(l, n, w.data());
      backward(l, n, w.data());
#pragma omp parallel for schedule(static) if (rows * n >= parallel_from)
      for (std::size_t r = 0; r < rows; ++r) {
        double residual = b[r * targets + t];
        for (std::size_t j = 0; j < n; ++j) residual -= w[j] * a[r * n + j];
        errors[r] = std::pow(residual / std::max(1 - leverage[r], 1e-6), 2);
      }
      const double error = std::accumulate(errors.begin(), errors.end(), 0.0);
      if (error >= least[t]) continue;
      least[t] = error, best.penalty[t] = penalty;
      std::copy(w.begin(), w.end(), best.weight.begin() + static_cast<std::ptrdiff_t>(t * n));
    }
  }
  return best;
}

}  // namespace mpigrad
