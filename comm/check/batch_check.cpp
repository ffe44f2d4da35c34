#include "comm/check/batch_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/collectives/collectives.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

struct Gradient {
  double value = 0;
  std::vector<std::vector<double>> rows, same;
};

// Of samples [first, first + count) on each rank.
Gradient gradient_of(const BatchLoss& loss, const Tensors& inputs, const Tensors& same, std::int64_t first, std::int64_t count,
                     const Communicator& comm) {
  Tensors rows, shared, wanted;
  const auto variable = [&](const Tensor& x) {
    if (!is_differentiable(x.dtype())) return x;
    wanted.push_back(x.as_variable());
    return wanted.back();
  };
  for (const auto& x : inputs) rows.push_back(variable(constant(slice(x, 0, first, first + count))));
  const auto of_rows = wanted.size();
  for (const auto& x : same) shared.push_back(variable(constant(x)));
  Tape tape;
  const auto share = loss(rows, shared, comm);
  Gradient result;
  result.value = total(share.without_layout(), comm);
  const auto gradients = tape.gradient(share, wanted);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    (i < of_rows ? result.rows : result.same).push_back(gradients[i].without_layout().to_vector());
  return result;
}

// Adds |g - e|^2, <g, e> and <e, e> of the elements of e from `offset` on.
void add(std::array<double, 3>& sums, const std::vector<double>& g, const std::vector<double>& e, std::size_t offset) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double expected = e[offset + i], difference = g[i] - expected;
    sums[0] += difference * difference, sums[1] += g[i] * expected, sums[2] += expected * expected;
  }
}

std::string describe(double gradient, double factor, bool parallel, int ranks) {
  if (!std::isfinite(gradient)) return "the gradient is not finite";
  const auto is = [&](double x) { return parallel && std::abs(factor - x) < 1e-6 * x; };
  if (is(ranks))
    return fmt::format(
        "the gradient is {} times that of one rank: every rank returns the whole loss, or a sum over ranks is "
        "differentiated twice",
        ranks);
  if (is(1.0 / ranks))
    return fmt::format(
        "the gradient is 1/{} of that of one rank: an average over ranks stands where a sum belongs, or a "
        "message has no adjoint",
        ranks);
  if (parallel) return fmt::format("the gradient is {:.6g} times that of one rank", factor);
  return "the gradient is another one than that of one rank, by more than a factor: the loss misses pairs or statistics of other "
         "ranks, or "
         "a message has no adjoint";
}

}  // namespace

BatchReport batch_check(const BatchLoss& loss, const Tensors& inputs, const Communicator& comm,
                        const BatchCheckOptions& options) {
  const int ranks = comm.size(), rank = comm.rank();
  require(ranks > 1, "[invariant] a batch is divided over at least two ranks; this communicator has {}", ranks);
  require(!inputs.empty(), "[invariant] a batch has at least one input");
  for (const auto& x : inputs)
    require(x.rank() > 0 && x.dim(0) == inputs[0].dim(0) && !x.layout(),
            "[invariant] inputs are plain tensors of one number of samples: {} and {}", inputs[0], x);
  const std::int64_t samples = inputs[0].dim(0);
  require(samples > 1, "[invariant] a batch that is divided has at least two samples: {}", inputs[0]);
  const auto alone = gradient_of(loss, inputs, options.same, 0, samples, comm.subgroup(std::array{rank}));

  std::vector<std::vector<std::int64_t>> divisions(3);  // cuts
  for (int r = 0; r <= ranks; ++r) {
    divisions[0].push_back(samples * r / ranks);
    divisions[1].push_back(r == ranks ? samples : std::min<std::int64_t>(r, samples));
    divisions[2].push_back(r == 0 ? 0 : r == ranks ? samples : std::max<std::int64_t>(0, samples - 1));
  }
  BatchReport report;
  for (const auto& cuts : divisions) {
    const auto first = cuts[static_cast<std::size_t>(rank)], count = cuts[static_cast<std::size_t>(rank) + 1] - first;
    const auto divided = gradient_of(loss, inputs, options.same, first, count, comm);
    std::array<double, 3> rows{}, same{};
    std::size_t next = 0;
    for (const auto& x : inputs) {
      if (!is_differentiable(x.dtype())) continue;
      const auto width = alone.rows[next].size() / static_cast<std::size_t>(samples);  // numbers: a complex element has two
      add(rows, divided.rows[next], alone.rows[next], static_cast<std::size_t>(first) * width), ++next;
    }
    for (std::size_t i = 0; i < alone.same.size(); ++i) add(same, divided.same[i], alone.same[i], 0);
    // `same` is the same on all ranks if it is right: the worst rank counts.
    comm.transport().allreduce(rows.data(), rows.data(), 3, DType::float64, CombineOp::sum);
    comm.transport().allreduce(same.data(), same.data(), 3, DType::float64, CombineOp::max);
    const double norm = rows[2] + same[2], factor = norm > 0 ? (rows[1] + same[1]) / norm : 1;
    const double gradient = norm > 0 ? std::sqrt((rows[0] + same[0]) / norm) : std::sqrt(rows[0] + same[0]);
    const double value = std::abs(divided.value - alone.value) / std::max(std::abs(alone.value), 1e-300);
    // NaN stays: no later division is worse.
    if (!std::isnan(report.value) && !(value <= report.value)) report.value = value;
    if (std::isnan(report.gradient) || gradient <= report.gradient) continue;
    report.gradient = gradient, report.factor = factor;
    // |g - f e|^2 = |g - e|^2 - (f - 1)^2 |e|^2, f the factor.
    const double rest = rows[0] + same[0] - (factor - 1) * (factor - 1) * norm;
    report.parallel = std::sqrt(std::max(0.0, rest) / norm) < 1e-6 * std::abs(factor);
  }
  report.passed = report.value <= options.tolerance && report.gradient <= options.tolerance;
  if (report.passed) return report;
  report.message =
      report.gradient <= options.tolerance
          ? fmt::format("the loss differs from that of one rank by {:.2g}, relative", report.value)
          : fmt::format("{} (relative difference {:.2g}; of the loss {:.2g})",
                        describe(report.gradient, report.factor, report.parallel, ranks), report.gradient, report.value);
  return report;
}

void require_invariant(const std::string& name, const BatchLoss& loss, const Tensors& inputs, const Communicator& comm,
                       const BatchCheckOptions& options) {
  const auto report = batch_check(loss, inputs, comm, options);
  require(report.passed, "[invariant] {} on {} ranks: {}", name, comm.size(), report.message);
}

}  // namespace mpigrad
