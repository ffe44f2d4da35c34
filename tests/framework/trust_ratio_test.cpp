// LARS and LAMB compared with their formulas as plain loops, on one rank and with parameters split over ranks.

#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <map>

#include "comm/collectives/collectives.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/optimizer_reductions.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/tensor/random.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor random_values(const Shape& shape, std::uint64_t seed, DType dtype, double size) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = size * Philox{.key = seed}.normal(i);
  return from_vector(shape, values, dtype);
}

struct Kind {
  const char* name;
  Shape shape;
  DType dtype;
  bool decay;
  double size;  // size of the values
};
// Parameters with very different norms; zeros, an empty one, and one of several blocks of the sums.
const std::vector<Kind> kinds{{"a.weight", {8, 13}, DType::float64, true, 10},
                              {"a.bias", {13}, DType::float64, false, 1},
                              {"zeros", {8, 3}, DType::float64, true, 0},
                              {"empty", {0}, DType::float64, true, 1},
                              {"b.weight", {160, 211}, DType::float32, true, 0.1}};
constexpr int steps = 4;

Tensor value_of(std::size_t i) { return random_values(kinds[i].shape, 10 + i, kinds[i].dtype, kinds[i].size); }
Tensor gradient_of(std::size_t i, int step) {
  return random_values(kinds[i].shape, 100 * static_cast<std::uint64_t>(step) + i, kinds[i].dtype, 1);
}

using Values = std::vector<std::vector<double>>;
using Make = std::function<std::unique_ptr<Optimizer>(Parameters&, const NormReduction&)>;

constexpr double rate = 0.2, decay = 0.05, scale = 0.5, momentum = 0.9, beta1 = 0.8, beta2 = 0.95, eta = 0.02, epsilon = 1e-6;

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

Values lars_by_hand() {
  Values result;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    auto p = value_of(i).to_vector(), v = std::vector<double>(p.size(), 0.0);
    const double wd = kinds[i].decay ? decay : 0;
    for (int t = 1; t <= steps; ++t) {
      auto g = gradient_of(i, t).to_vector();
      for (auto& value : g) value *= scale;
      const double w = norm(p), d = norm(g);
      const double ratio = kinds[i].decay && w > 0 && d > 0 ? eta * w / (d + wd * w) : 1;
      for (std::size_t j = 0; j < p.size(); ++j) {
        v[j] = momentum * v[j] + rate * ratio * (g[j] + wd * p[j]);
        p[j] -= v[j];
      }
    }
    result.push_back(p);
  }
  return result;
}

Values lamb_by_hand() {
  Values result;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    auto p = value_of(i).to_vector(), m = std::vector<double>(p.size(), 0.0), v = m, s = m;
    const double wd = kinds[i].decay ? decay : 0;
    for (int t = 1; t <= steps; ++t) {
      const auto g = gradient_of(i, t).to_vector();
      for (std::size_t j = 0; j < p.size(); ++j) {
        const double d = scale * g[j];
        m[j] = beta1 * m[j] + (1 - beta1) * d;
        v[j] = beta2 * v[j] + (1 - beta2) * d * d;
        s[j] = m[j] / (1 - std::pow(beta1, t)) / (std::sqrt(v[j] / (1 - std::pow(beta2, t))) + epsilon) + wd * p[j];
      }
      const double w = norm(p), d = norm(s);
      const double ratio = kinds[i].decay && w > 0 && d > 0 ? w / d : 1;
      for (std::size_t j = 0; j < p.size(); ++j) p[j] -= rate * ratio * s[j];
    }
    result.push_back(p);
  }
  return result;
}

struct Rule {
  const char* name;
  Make make;
  Values (*by_hand)();
};
const Rule rules[] = {
    {"lars",
     [](Parameters& p, const NormReduction& reduce) -> std::unique_ptr<Optimizer> {
       return std::make_unique<LARS>(
           p, LarsAttributes{
                  .learning_rate = rate, .momentum = momentum, .weight_decay = decay, .trust = eta, .reduce_norms = reduce});
     },
     lars_by_hand},
    {"lamb",
     [](Parameters& p, const NormReduction& reduce) -> std::unique_ptr<Optimizer> {
       return std::make_unique<LAMB>(p, LambAttributes{.learning_rate = rate,
                                                       .beta1 = beta1,
                                                       .beta2 = beta2,
                                                       .epsilon = epsilon,
                                                       .weight_decay = decay,
                                                       .reduce_norms = reduce});
     },
     lamb_by_hand}};

void require_values(const Tensor& found, const std::vector<double>& expected, std::size_t i) {
  const auto values = found.to_vector();
  require(values.size() == expected.size(), "[test] {}", found);
  double worst = 0;
  for (std::size_t j = 0; j < values.size(); ++j)
    worst = std::max(worst, std::abs(values[j] - expected[j]) / std::max(1.0, std::abs(expected[j])));
  require(worst < (kinds[i].dtype == DType::float64 ? 1e-13 : 3e-6), "[test] {} is {} off", kinds[i].name, worst);
}

// Runs the rule on one set of parameters; part(x) is the block that this set has of a parameter or gradient.
void run_rule(const Rule& rule, Parameters& parameters, const NormReduction& reduce,
              const std::function<Tensor(const Tensor&, std::size_t)>& part) {
  for (std::size_t i = 0; i < kinds.size(); ++i) parameters.add(kinds[i].name, part(value_of(i), i), kinds[i].decay);
  parameters.pack();
  const auto optimizer = rule.make(parameters, reduce);
  for (int t = 1; t <= steps; ++t) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < kinds.size(); ++i) gradients.push_back(part(gradient_of(i, t), i));
    optimizer->step(Gradients(gradients), {.scale = scale});
  }
}

Tensor whole(const Tensor& x, std::size_t) { return x; }

}  // namespace

TEST_CASE_ON_DEVICES("lars and lamb follow their formulas", no_gpu) {
  const UseDevice use(device);
  int calls = 0;
  const NormReduction counted = [&](const Parameters& parameters, std::span<double> squares) {
    require(squares.size() == 2 * parameters.size(), "[test] {} squares", squares.size());
    ++calls;
  };
  for (const auto& rule : rules)
    for (const auto& reduce : {NormReduction(), counted}) {
      Parameters parameters;
      run_rule(rule, parameters, reduce, [&](const Tensor& x, std::size_t) { return to(x, device); });
      const auto expected = rule.by_hand();
      for (std::size_t i = 0; i < kinds.size(); ++i) {
        INFO(std::string(rule.name));
        CHECK_NOTHROW(require_values(parameters[i].value, expected[i], i));
      }
    }
  CHECK(calls == 2 * steps);
}

TEST_CASE("lars and lamb are right for parameters that are cut over ranks, and for those that are not") {
  const auto cut = [](std::size_t i) { return i != 1 && kinds[i].shape.rank() == 2; };
  for (const auto& rule : rules) {
    const auto expected = rule.by_hand();
    for (const int size : {1, 2, 3, 4})
      check_on_ranks(size, rule.name, [&](const Communicator& comm) {
        const auto part = [&](const Tensor& x, std::size_t i) {
          if (!cut(i)) return x;
          const auto cuts = balanced_cuts(x.dim(0), comm.size());
          const auto r = static_cast<std::size_t>(comm.rank());
          return slice(x, 0, cuts[r], cuts[r + 1]);
        };
        const auto is_cut = [](const Parameter& p) { return p.value.rank() == 2; };
        Parameters parameters;
        run_rule(rule, parameters, sum_norms_over(comm, is_cut), part);
        for (std::size_t i = 0; i < kinds.size(); ++i) {
          const auto& p = parameters[i].value;
          require_values(cut(i) ? allgather(constant(p), comm) : p, expected[i], i);
        }
        if (comm.size() == 1) return;
        // The norms of blocks are different: without the sums over ranks the results must differ.
        Parameters wrong;
        run_rule(rule, wrong, {}, part);
        const auto found = allgather(constant(wrong[0].value), comm).to_vector();
        double worst = 0;
        for (std::size_t j = 0; j < found.size(); ++j) worst = std::max(worst, std::abs(found[j] - expected[0][j]));
        require(worst > 1e-3, "[test] sums over ranks make no difference");
      });
  }
}

TEST_CASE("lars and lamb: the same for any number of threads; state goes to a checkpoint and back") {
  const int threads = omp_get_max_threads();
  for (const auto& rule : rules) {
    Values results[2];
    for (const int count : {1, 3}) {
      omp_set_num_threads(count);
      Parameters parameters;
      run_rule(rule, parameters, {}, whole);
      for (std::size_t i = 0; i < kinds.size(); ++i) results[count / 2].push_back(parameters[i].value.to_vector());
    }
    omp_set_num_threads(threads);
    INFO(std::string(rule.name));
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      INFO(std::string(kinds[i].name));
      CHECK(results[0][i] == results[1][i]);
    }
  }
  Parameters parameters;
  parameters.add("w", from_vector({2}, {3, 4}, DType::float64), true);
  parameters.pack();
  LARS lars(parameters, {.learning_rate = 1, .momentum = 0.5, .weight_decay = 0, .trust = 0.1});
  lars.step(Gradients({from_vector({2}, {0, 2}, DType::float64)}));  // ratio 0.1 * 5 / 2
  CHECK(parameters[0].value.to_vector()[0] == 3);
  CHECK(parameters[0].value.to_vector()[1] == doctest::Approx(3.5).epsilon(1e-15));
  REQUIRE(lars.state().size() == 1);
  CHECK(lars.state()[0].value.to_vector()[1] == doctest::Approx(0.5).epsilon(1e-15));
  CHECK_THROWS_WITH_AS(LARS(parameters, {.momentum = 1}), "[lars] momentum is in [0, 1), got 1", Error);
  CHECK_THROWS_WITH_AS(LAMB(parameters, {.beta1 = 1}), "[lamb] beta1 is in [0, 1), got 1", Error);
}

TEST_CASE("a cosine after a warm-up, as large batches are trained") {
  const schedule::WarmUp large{.steps = 10, .then = schedule::Cosine{.rate = 4.8, .steps = 100}};
  CHECK(large(0) == 0);
  CHECK(large(5) == doctest::Approx(2.4));
  CHECK(large(10) == doctest::Approx(4.8));
  CHECK(large(60) == doctest::Approx(2.4));
  CHECK(large(110) == doctest::Approx(0));
}
