#include "comm/check/batch_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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

// The gradient of all inputs, or of one of them, against that of one rank.
struct Comparison {
  double difference = 0, factor = 1;  // relative; see BatchReport
  bool parallel = true;
};

// sums: |g - e|^2, <g, e>, <e, e>. `rounding`: the part of |g - e| that does not count. `close`: relative, of factors.
Comparison compare(const std::array<double, 3>& sums, double rounding, double close) {
  Comparison result;
  const double norm = sums[2], beyond = std::sqrt(sums[0]) - rounding;
  // Not max(): NaN stays.
  result.difference = beyond <= 0 ? 0 : norm > 0 ? beyond / std::sqrt(norm) : beyond;
  if (norm > 0) result.factor = sums[1] / norm;
  // |g - f e|^2 = |g - e|^2 - (f - 1)^2 |e|^2, f the factor.
  const double rest = sums[0] - (result.factor - 1) * (result.factor - 1) * norm;
  result.parallel = std::sqrt(std::max(0.0, rest) / norm) < close * std::abs(result.factor);
  return result;
}

std::string describe(const BatchReport& r, int ranks, double close) {
  const auto gradient = r.input.empty() ? "the gradient" : "the gradient of " + r.input;
  if (!std::isfinite(r.gradient)) return gradient + " is not finite";
  const auto is = [&](double x) { return r.parallel && std::abs(r.factor - x) < close * x; };
  if (is(ranks))
    return fmt::format(
        "{} is {} times that of one rank: every rank returns the whole loss, or a sum over ranks is "
        "differentiated twice",
        gradient, ranks);
  if (is(1.0 / ranks))
    return fmt::format(
        "{} is 1/{} of that of one rank: an average over ranks stands where a sum belongs, or a "
        "message has no adjoint",
        gradient, ranks);
  if (r.parallel) return fmt::format("{} is {:.6g} times that of one rank", gradient, r.factor);
  return gradient +
         " is another one than that of one rank, by more than a factor: the loss misses pairs or statistics of other ranks, or "
         "a message has no adjoint";
}

// The largest eps of the inputs that are differentiated.
double epsilon_of(const Tensors& inputs, const Tensors& same) {
  double eps = std::numeric_limits<double>::epsilon();
  for (const auto* list : {&inputs, &same})
    for (const auto& x : *list)
      if (is_differentiable(x.dtype()) && x.dtype() != DType::float64 && x.dtype() != DType::complex128)
        eps = std::max(eps, x.dtype() == DType::bfloat16  ? 0x1p-7
                            : x.dtype() == DType::float16 ? 0x1p-10
                                                          : static_cast<double>(std::numeric_limits<float>::epsilon()));
  return eps;
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
  const double eps = epsilon_of(inputs, options.same), rounding = 450 * eps;
  const bool exact = eps == std::numeric_limits<double>::epsilon();
  const double tolerance = options.tolerance > 0 ? options.tolerance : exact ? 1e-9 : 1e-3;
  const double close = std::max(1e-6, tolerance);  // of factors
  // The magnitude of the terms that the loss is a sum of, by its first derivatives.
  double magnitude = 0;
  std::vector<std::string> names;
  const auto add_terms = [&](const Tensors& list, const std::vector<std::vector<double>>& gradients, const char* name) {
    for (std::size_t i = 0, next = 0; i < list.size(); ++i) {
      if (!is_differentiable(list[i].dtype())) continue;
      names.push_back(fmt::format("{}[{}]", name, i));
      const auto x = list[i].to_vector();
      for (std::size_t e = 0; e < x.size(); ++e) magnitude += std::abs(x[e] * gradients[next][e]);
      ++next;
    }
  };
  add_terms(inputs, alone.rows, "inputs");
  add_terms(options.same, alone.same, "same");

  BatchReport report;
  double other_value = alone.value;
  for (const auto& cuts : divisions) {
    const auto first = cuts[static_cast<std::size_t>(rank)], count = cuts[static_cast<std::size_t>(rank) + 1] - first;
    const auto divided = gradient_of(loss, inputs, options.same, first, count, comm);
    std::vector<std::array<double, 3>> sums(names.size());  // of each input
    const auto of_rows = alone.rows.size();
    for (std::size_t i = 0; i < of_rows; ++i) {
      const auto width = alone.rows[i].size() / static_cast<std::size_t>(samples);  // numbers: a complex element has two
      add(sums[i], divided.rows[i], alone.rows[i], static_cast<std::size_t>(first) * width);
    }
    for (std::size_t i = 0; i < alone.same.size(); ++i) add(sums[of_rows + i], divided.same[i], alone.same[i], 0);
    // `same` is the same on all ranks if it is right: the worst rank counts.
    const auto reduce = [&](std::size_t from, std::size_t count_of, CombineOp op) {
      if (count_of > 0)
        comm.transport().allreduce(sums[from].data(), sums[from].data(), static_cast<std::int64_t>(3 * count_of), DType::float64,
                                   op);
    };
    reduce(0, of_rows, CombineOp::sum), reduce(of_rows, alone.same.size(), CombineOp::max);
    std::array<double, 3> all{};
    for (const auto& each : sums)
      for (std::size_t k = 0; k < 3; ++k) all[k] += each[k];
    const double apart = std::abs(divided.value - alone.value) - rounding * magnitude;
    const double value = apart <= 0 ? 0 : apart / std::abs(alone.value);  // infinite if one rank has 0
    // NaN stays: no later division is worse.
    if (!std::isnan(report.value) && !(value <= report.value)) report.value = value, other_value = divided.value;
    const auto judge = [&](const Comparison& found, const std::string& name) {
      if (std::isnan(report.gradient) || found.difference <= report.gradient) return;
      report.gradient = found.difference, report.factor = found.factor, report.parallel = found.parallel, report.input = name;
    };
    const auto whole = compare(all, 0, close);
    judge(whole, "");
    // One that all together hide, because it is smaller than the others.
    if (whole.difference <= tolerance)
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto one = compare(sums[i], rounding * std::sqrt(all[2]), close);
        if (one.difference > tolerance) judge(one, names[i]);
      }
  }
  report.passed = report.value <= tolerance && report.gradient <= tolerance;
  if (report.passed) return report;
  const auto of_value =
      std::isinf(report.value) ? fmt::format("{:.6g} in place of 0", other_value) : fmt::format("{:.2g}", report.value);
  if (report.gradient > tolerance || std::isnan(report.gradient))
    report.message =
        fmt::format("{} (relative difference {:.2g}; of the loss {})", describe(report, ranks, close), report.gradient, of_value);
  else if (std::isinf(report.value)) report.message = fmt::format("the loss is {:.6g}, that of one rank 0", other_value);
  else report.message = fmt::format("the loss differs from that of one rank by {}, relative", of_value);
  return report;
}

void require_invariant(const std::string& name, const BatchLoss& loss, const Tensors& inputs, const Communicator& comm,
                       const BatchCheckOptions& options) {
  const auto report = batch_check(loss, inputs, comm, options);
  require(report.passed, "[invariant] {} on {} ranks: {}", name, comm.size(), report.message);
}

}  // namespace mpigrad
