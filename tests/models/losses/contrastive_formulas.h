#pragma once
// Contrastive losses as plain loops over all pairs, unstable and slow: the references for the library's losses.

#include <cmath>
#include <vector>

namespace mpigrad::testing::contrastive::formulas {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}
inline Rows unit(Rows z) {
  for (auto& row : z) {
    const double norm = std::sqrt(dot(row, row));
    for (auto& value : row) value /= norm;
  }
  return z;
}

inline double nt_xent(Rows a, const Rows& b, double temperature) {
  const auto n = a.size();
  a.insert(a.end(), b.begin(), b.end());
  const auto z = unit(a);
  double loss = 0;
  for (std::size_t i = 0; i < 2 * n; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < 2 * n; ++k)
      if (k != i) sum += std::exp(dot(z[i], z[k]) / temperature);
    loss -= std::log(std::exp(dot(z[i], z[(i + n) % (2 * n)]) / temperature) / sum);
  }
  return loss / static_cast<double>(2 * n);
}

inline double clip(const Rows& a, const Rows& b, double t) {
  const auto x = unit(a), y = unit(b);
  const auto n = x.size();
  double loss = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double across = 0, down = 0;
    for (std::size_t j = 0; j < n; ++j)
      across += std::exp(std::exp(t) * dot(x[i], y[j])), down += std::exp(std::exp(t) * dot(x[j], y[i]));
    const double pair = std::exp(t) * dot(x[i], y[i]);
    loss += std::log(across) - pair + std::log(down) - pair;
  }
  return loss / static_cast<double>(2 * n);
}

inline double sup_con(const Rows& rows, const Row& labels, double temperature, bool together, bool per_sample) {
  const auto z = unit(rows);
  double loss = 0, pairs = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const auto e = [&](std::size_t k) { return std::exp(dot(z[i], z[k]) / temperature); };
    double of_row = 0, positives = 0;
    for (std::size_t p = 0; p < z.size(); ++p) {
      if (p == i || labels[p] != labels[i]) continue;
      double sum = together ? 0 : e(p);
      for (std::size_t k = 0; k < z.size(); ++k)
        if (together ? k != i : labels[k] != labels[i]) sum += e(k);
      of_row -= std::log(e(p) / sum);
      ++positives;
    }
    pairs += positives;
    if (positives > 0) loss += per_sample ? of_row / positives : of_row;
  }
  return loss / (per_sample ? static_cast<double>(z.size()) : pairs);
}

inline double siglip(const Rows& a, const Rows& b, double t, double bias) {
  const auto x = unit(a), y = unit(b);
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j)
      loss += std::log1p(std::exp((i == j ? -1 : 1) * (std::exp(t) * dot(x[i], y[j]) + bias)));
  return loss / static_cast<double>(x.size());
}

inline Row mean_of(const Rows& z) {
  Row mean(z[0].size(), 0.0);
  for (const auto& row : z)
    for (std::size_t d = 0; d < row.size(); ++d) mean[d] += row[d] / static_cast<double>(z.size());
  return mean;
}
// 1/divisor sum over samples of (a_i - mean) (b_j - mean)
inline Rows covariance(const Rows& a, const Rows& b, double divisor) {
  const auto ma = mean_of(a), mb = mean_of(b);
  Rows c(ma.size(), Row(mb.size(), 0.0));
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::size_t i = 0; i < ma.size(); ++i)
      for (std::size_t j = 0; j < mb.size(); ++j) c[i][j] += (a[s][i] - ma[i]) * (b[s][j] - mb[j]) / divisor;
  return c;
}

inline double barlow_twins(const Rows& a, const Rows& b, double lambda) {
  const auto n = static_cast<double>(a.size());
  const auto ab = covariance(a, b, n), aa = covariance(a, a, n), bb = covariance(b, b, n);
  double loss = 0;
  for (std::size_t i = 0; i < ab.size(); ++i)
    for (std::size_t j = 0; j < ab.size(); ++j) {
      const double c = ab[i][j] / std::sqrt((aa[i][i] + 1e-5) * (bb[j][j] + 1e-5));
      loss += i == j ? (1 - c) * (1 - c) : lambda * c * c;
    }
  return loss;
}

inline double vicreg(const Rows& a, const Rows& b) {
  const auto n = static_cast<double>(a.size()), width = static_cast<double>(a[0].size());
  double loss = 0;
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::size_t d = 0; d < a[s].size(); ++d) loss += 25 * (a[s][d] - b[s][d]) * (a[s][d] - b[s][d]) / (n * width);
  for (const auto* z : {&a, &b}) {
    const auto c = covariance(*z, *z, n - 1);
    for (std::size_t i = 0; i < c.size(); ++i)
      for (std::size_t j = 0; j < c.size(); ++j)
        loss += i == j ? 12.5 * std::max(0.0, 1 - std::sqrt(c[i][i] + 1e-4)) / width : c[i][j] * c[i][j] / width;
  }
  return loss;
}

inline double spectral(const Rows& a, const Rows& b, bool all) {
  const auto n = static_cast<double>(a.size());
  double loss = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    loss -= 2 * dot(a[i], b[i]) / n;
    for (std::size_t j = 0; j < a.size(); ++j)
      if (all || i != j) loss += dot(a[i], b[j]) * dot(a[i], b[j]) / (all ? n * n : n * (n - 1));
  }
  return loss;
}

// `directions`: random rows of the width of z, not of unit norm.
inline double sigreg(const Rows& z, const Rows& directions, int points, double range) {
  const auto n = static_cast<double>(z.size());
  const double spacing = 2 * range / (points - 1);
  double loss = 0;
  for (const auto& a : unit(directions))
    for (int k = 0; k < points; ++k) {
      const double t = -range + k * spacing, phi = std::exp(-0.5 * t * t);
      double re = 0, im = 0;
      for (const auto& row : z) re += std::cos(t * dot(a, row)) / n, im += std::sin(t * dot(a, row)) / n;
      const double end = k == 0 || k == points - 1 ? 0.5 : 1;
      loss += end * spacing * n * ((re - phi) * (re - phi) + im * im) * phi;
    }
  return loss / static_cast<double>(directions.size());
}

inline double lejepa(const std::vector<Rows>& views, const Rows& directions, double lambda, int points, double range) {
  double apart = 0, spread = 0, numbers = 0;
  for (const auto& z : views) {
    spread += sigreg(z, directions, points, range) / static_cast<double>(views.size());
    for (std::size_t i = 0; i < z.size(); ++i)
      for (std::size_t d = 0; d < z[i].size(); ++d, ++numbers)
        apart += std::pow(z[i][d] - 0.5 * (views[0][i][d] + views[1][i][d]), 2);
  }
  return (1 - lambda) * apart / numbers + lambda * spread;
}

inline double koleo(const Rows& rows) {
  const auto z = unit(rows);
  double loss = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    double least = 4;
    for (std::size_t j = 0; j < z.size(); ++j)
      if (j != i) least = std::min(least, std::sqrt(2 - 2 * dot(z[i], z[j])));
    loss -= std::log(least + 1e-8) / static_cast<double>(z.size());
  }
  return loss;
}

inline Row softmax(const Row& x, const Row& minus, double temperature) {
  Row result(x.size());
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += result[k] = std::exp((x[k] - minus[k]) / temperature);
  for (auto& value : result) value /= sum;
  return result;
}

inline double dino(const std::vector<Rows>& student, const std::vector<Rows>& teacher, const Row& centre, double ts, double tt) {
  double loss = 0, pairs = 0;
  for (std::size_t v = 0; v < student.size(); ++v)
    for (std::size_t a = 0; a < teacher.size(); ++a) {
      if (a == v) continue;
      ++pairs;
      for (std::size_t i = 0; i < student[v].size(); ++i) {
        const auto q = softmax(teacher[a][i], centre, tt), p = softmax(student[v][i], Row(centre.size(), 0.0), ts);
        for (std::size_t k = 0; k < q.size(); ++k) loss -= q[k] * std::log(p[k]);
      }
    }
  return loss / (pairs * static_cast<double>(student[0].size()));
}

inline double auc(const Rows& scores, const Row& labels, double margin) {
  double loss = 0, pairs = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    for (std::size_t j = 0; j < labels.size(); ++j)
      if (labels[i] != 0 && labels[j] == 0) ++pairs, loss += std::pow(std::max(0.0, margin - (scores[i][0] - scores[j][0])), 2);
  return loss / pairs;
}

inline double moco(const Rows& queries, const Rows& keys, const Rows& queue, double temperature) {
  const auto q = unit(queries), k = unit(keys);
  double loss = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const double pair = std::exp(dot(q[i], k[i]) / temperature);
    double sum = pair;
    for (const auto& negative : queue) sum += std::exp(dot(q[i], negative) / temperature);
    loss -= std::log(pair / sum) / static_cast<double>(q.size());
  }
  return loss;
}

// The steps of the paper without changes: [n, K] scores, [n, K] assignments.
inline Rows sinkhorn(const Rows& scores, double epsilon) {
  const auto n = scores.size(), k = scores[0].size();
  Rows q = scores;
  double all = 0;
  for (auto& row : q)
    for (auto& value : row) value = std::exp(value / epsilon), all += value;
  for (auto& row : q)
    for (auto& value : row) value /= all;
  for (int step = 0; step < 3; ++step) {
    for (std::size_t j = 0; j < k; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += q[i][j];
      for (std::size_t i = 0; i < n; ++i) q[i][j] /= sum * static_cast<double>(k);
    }
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < k; ++j) sum += q[i][j];
      for (std::size_t j = 0; j < k; ++j) q[i][j] /= sum * static_cast<double>(n);
    }
  }
  for (auto& row : q)
    for (auto& value : row) value *= static_cast<double>(n);
  return q;
}

// queue: earlier unit rows for each of the two assigned crops, or empty
inline double swav(const std::vector<Rows>& crops, const Rows& prototypes, double temperature, double epsilon,
                   const std::vector<Rows>& queue = {}) {
  std::vector<Rows> scores;
  for (const auto& crop : crops) {
    scores.emplace_back();
    for (const auto& z : unit(crop)) {
      scores.back().emplace_back();
      for (const auto& c : prototypes) scores.back().back().push_back(dot(z, c));
    }
  }
  double loss = 0;
  for (std::size_t a = 0; a < 2; ++a) {
    auto together = scores[a];
    if (!queue.empty())
      for (const auto& z : queue[a]) {
        together.emplace_back();
        for (const auto& c : prototypes) together.back().push_back(dot(z, c));
      }
    auto q = sinkhorn(together, epsilon);
    q.resize(scores[a].size());
    for (std::size_t v = 0; v < crops.size(); ++v) {
      if (v == a) continue;
      for (std::size_t i = 0; i < q.size(); ++i) {
        double sum = 0;
        for (const double s : scores[v][i]) sum += std::exp(s / temperature);
        for (std::size_t k = 0; k < q[i].size(); ++k) loss -= q[i][k] * std::log(std::exp(scores[v][i][k] / temperature) / sum);
      }
    }
  }
  return loss / (2 * static_cast<double>(crops.size() - 1) * static_cast<double>(crops[0].size()));
}

}  // namespace mpigrad::testing::contrastive::formulas
