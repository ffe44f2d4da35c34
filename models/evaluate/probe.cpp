#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "models/evaluate/embeddings.h"
#include "models/evaluate/evaluate_set.h"
#include "models/train/metrics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

using Vector = std::vector<double>;

double inner(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }
void add(Vector& y, double scale, const Vector& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += scale * x[i];
}

// Standardised rows in float64, with a column of ones for the bias.
Tensor inputs(const Probe& probe, const Tensor& z) {
  const auto mean = from_vector({1, probe.width}, probe.mean, DType::float64);
  const auto scale = from_vector({1, probe.width}, probe.scale, DType::float64);
  return concatenate({(cast(z, DType::float64) - mean) * scale, ones({z.dim(0), 1}, DType::float64)}, 1);
}
Tensor scores_of(const Probe& probe, const Tensor& x) {
  return matmul(x, from_vector({probe.classes, probe.width + 1}, probe.weights, DType::float64), {.transpose_b = true});
}
template <class Visit>
void for_each_tile(const Tensor& z, std::int64_t tile, const Visit& visit) {
  for (std::int64_t i = 0; i < z.dim(0); i += tile) visit(slice(z, 0, i, std::min(z.dim(0), i + tile)), i);
}

// Mean cross entropy over the whole set, decay included, and its gradient.
struct Objective {
  const Tensor& z;
  const std::vector<std::int64_t>& labels;  // of all ranks
  const Batch& batch;
  const ProbeAttributes& at;

  double operator()(Probe& probe, const Vector& weights, Vector& gradient) const {
    probe.weights = weights;
    // Sums over this rank's samples: the gradient, then the loss.
    auto sums = zeros({probe.classes, probe.width + 1}, DType::float64);
    double loss = 0;
    for_each_tile(z, at.tile, [&](const Tensor& rows, std::int64_t first) {
      const auto x = inputs(probe, rows), logs = log_softmax(scores_of(probe, x));
      const auto begin = labels.begin() + batch.first + first;
      const Vector own(begin, begin + rows.dim(0));
      const auto truth = one_hot(from_vector({rows.dim(0)}, own, DType::int64), probe.classes, DType::float64);
      loss -= sum(truth * logs).item();
      sums = sums + matmul(exp(logs) - truth, x, {.transpose_a = true});
    });
    gradient = sums.to_vector();
    gradient.push_back(loss);
    sum_over_ranks(gradient, batch.comm);
    const double n = static_cast<double>(batch.all);
    double value = gradient.back() / n;
    gradient.pop_back();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const bool bias = static_cast<std::int64_t>(i) % (probe.width + 1) == probe.width;
      gradient[i] = gradient[i] / n + (bias ? 0 : at.decay * weights[i]);
      value += bias ? 0 : at.decay / 2 * weights[i] * weights[i];
    }
    return value;
  }
};

// The steps of L-BFGS (Nocedal 1980): the gradient times an approximate inverse Hessian from the last steps.
struct Memory {
  struct Pair {
    Vector step, change;  // of the weights, of the gradient
    double product;       // step . change > 0
  };
  std::deque<Pair> pairs;

  Vector direction(Vector g) const {
    Vector factors;
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      factors.push_back(inner(pair->step, g) / pair->product);
      add(g, -factors.back(), pair->change);
    }
    if (!pairs.empty()) {
      const auto& last = pairs.back();
      const double scale = last.product / inner(last.change, last.change);
      for (auto& value : g) value *= scale;
    }
    for (const auto& pair : pairs) {
      add(g, factors.back() - inner(pair.change, g) / pair.product, pair.step);
      factors.pop_back();
    }
    for (auto& value : g) value = -value;
    return g;
  }
  void remember(Vector step, Vector change) {
    constexpr std::size_t kept = 10;
    const double product = inner(step, change);
    if (!(product > 1e-12 * inner(change, change))) return;
    pairs.push_back({std::move(step), std::move(change), product});
    if (pairs.size() > kept) pairs.pop_front();
  }
};

void standardise(Probe& probe, const Tensor& z, const Batch& batch) {
  const auto n = static_cast<double>(batch.all);
  const auto width = static_cast<std::size_t>(probe.width);
  // Two passes: the mean, then the variance around it.
  probe.mean.assign(width, 0), probe.scale.assign(width, 1);
  const auto sums = [&](const auto& f) {
    auto all = zeros({probe.width}, DType::float64);
    for_each_tile(z, 4096, [&](const Tensor& rows, std::int64_t) { all = all + sum(f(cast(rows, DType::float64)), {0}); });
    auto values = all.to_vector();
    sum_over_ranks(values, batch.comm);
    for (auto& value : values) value /= n;
    return values;
  };
  probe.mean = sums([](const Tensor& x) { return x; });
  const auto mean = from_vector({1, probe.width}, probe.mean, DType::float64);
  const auto variance = sums([&](const Tensor& x) { return square(x - mean); });
  // A constant dimension has no information, and dividing by its deviation would amplify rounding.
  for (std::size_t d = 0; d < width; ++d)
    probe.scale[d] = variance[d] > 1e-14 * (1e-30 + probe.mean[d] * probe.mean[d]) ? 1 / std::sqrt(variance[d]) : 0;
}

}  // namespace

std::vector<double> Probe::scores(const Tensor& embeddings) const {
  Untaped scope;
  const auto z = embeddings.without_layout();
  require(z.rank() == 2 && z.dim(1) == width && is_floating(z.dtype()), "[probe] embeddings are [samples, {}]: {}", width, z);
  std::vector<double> all;
  for_each_tile(z, 4096, [&](const Tensor& rows, std::int64_t) {
    const auto values = scores_of(*this, inputs(*this, rows)).to_vector();
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

Probe train_probe(const Labelled& samples, const Communicator& comm, const ProbeAttributes& at) {
  Untaped scope;
  require(at.tile > 0 && at.iterations >= 0 && at.decay >= 0, "[probe] tile {}, iterations {} and decay {} are invalid", at.tile,
          at.iterations, at.decay);
  const auto batch = inspect("probe", {samples.embeddings}, comm, {.refuse_zeros = false});
  const auto labels = gathered_labels("probe", samples.labels, batch);
  const auto largest = *std::max_element(labels.begin(), labels.end()),
             smallest = *std::min_element(labels.begin(), labels.end());
  Probe probe{.classes = at.classes > 0 ? at.classes : largest + 1, .width = batch.width, .mean = {}, .scale = {}, .weights = {}};
  require(smallest >= 0 && largest < probe.classes && probe.classes >= 2,
          "[probe] labels {} to {} for {} classes; at least two classes are needed", smallest, largest, probe.classes);
  const auto& z = batch.views[0];
  UseDevice device(z.device());
  standardise(probe, z, batch);

  const Objective objective{z, labels, batch, at};
  Vector weights(static_cast<std::size_t>(probe.classes * (probe.width + 1)), 0.0), gradient, trial_gradient;
  double value = objective(probe, weights, gradient);
  Memory memory;
  for (probe.iterations = 0; probe.iterations < at.iterations; ++probe.iterations) {
    if (std::sqrt(inner(gradient, gradient)) <= at.tolerance * (1 + std::sqrt(inner(weights, weights)))) break;
    auto direction = memory.direction(gradient);
    double derivative = inner(direction, gradient);
    if (!(derivative < 0)) memory.pairs.clear(), direction = memory.direction(gradient), derivative = inner(direction, gradient);
    // Armijo's rule by halving; the first step has no scale yet. Where the value no longer tells steps apart, the gradient does.
    double length = memory.pairs.empty() ? 1 / std::max(1.0, std::sqrt(-derivative)) : 1, next = value;
    Vector trial;
    bool found = false;
    for (int halvings = 0; halvings < 40 && !found; ++halvings, length /= 2) {
      trial = weights;
      add(trial, length, direction);
      next = objective(probe, trial, trial_gradient);
      found = next <= value + 1e-4 * length * derivative ||
              (next <= value + 1e-14 * std::abs(value) && inner(trial_gradient, trial_gradient) < inner(gradient, gradient));
    }
    if (!found) break;  // converged to rounding
    Vector step = trial, change = trial_gradient;
    add(step, -1, weights), add(change, -1, gradient);
    memory.remember(std::move(step), std::move(change));
    weights = trial, gradient = trial_gradient, value = next;
  }
  probe.weights = weights, probe.loss = value;
  return probe;
}

double probe_accuracy(const Probe& probe, const Labelled& samples, const Communicator& comm) {
  Untaped scope;
  const auto batch = inspect("probe", {samples.embeddings}, comm, {.smallest = 1, .refuse_zeros = false});
  const auto labels = gathered_labels("probe", samples.labels, batch);
  const auto predicted = argmax_rows(probe.scores(batch.views[0]), probe.classes);
  double right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i)
    right += predicted[i] == labels[static_cast<std::size_t>(batch.first) + i] ? 1 : 0;
  return sum_over_ranks(right, comm) / static_cast<double>(batch.all);
}

double probe_auc(const Probe& probe, const Labelled& samples, const Communicator& comm) {
  Untaped scope;
  require(probe.classes == 2, "[probe] the area under the curve is of two classes, not {}", probe.classes);
  const auto batch = inspect("probe", {samples.embeddings}, comm, {.smallest = 1, .refuse_zeros = false});
  const auto labels = gathered_labels("probe", samples.labels, batch);
  const auto scores = probe.scores(batch.views[0]);
  std::vector<double> differences, roundings;
  for (std::size_t i = 0; i + 1 < scores.size(); i += 2) {
    differences.push_back(scores[i + 1] - scores[i]);
    roundings.push_back(rounding_of_outputs * std::max(std::abs(scores[i]), std::abs(scores[i + 1])));
  }
  const auto of_all = [&](const std::vector<double>& mine) {
    return allgather(constant(from_vector({batch.here}, mine, DType::float64)), comm, batch.rows).to_vector();
  };
  return roc_auc(of_all(differences), labels, of_all(roundings));
}

}  // namespace mpigrad::contrastive
