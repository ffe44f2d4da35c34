// Optimizers compared with a scalar version of their formulas, and schedules with values calculated by hand.

#include "framework/optim/optimizer.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <memory>
#include <numbers>

#include "framework/optim/schedule.h"
#include "framework/tensor/random.h"

using namespace mpigrad;

namespace {

Tensor random_values(const Shape& shape, std::uint64_t seed, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Philox{.key = seed}.normal(i);
  return from_vector(shape, values, dtype);
}

// Two float32 matrices, a bias and a float64 tensor; sizes are not multiples of any block size.
void fill(Parameters& parameters) {
  parameters.add("a.weight", random_values({7, 13}, 1, DType::float32), true);
  parameters.add("a.bias", random_values({13}, 2, DType::float32), false);
  parameters.add("scale", random_values({5}, 3, DType::float64), true);
  parameters.add("b.weight", random_values({301, 211}, 4, DType::float32), true);
  parameters.add("empty", random_values({0}, 5, DType::float32), true);
  parameters.pack();
}

Gradients random_gradients(const Parameters& parameters, std::uint64_t seed) {
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    result.push_back(random_values(parameters[i].value.shape(), seed * 100 + i, parameters[i].value.dtype()));
  return Gradients(result);
}

using Values = std::vector<std::vector<double>>;

Values values_of(const Parameters& parameters) {
  Values result;
  for (std::size_t i = 0; i < parameters.size(); ++i) result.push_back(parameters[i].value.to_vector());
  return result;
}

// Applies rule(p, g, state 0, state 1, parameter, t) to each element for some steps, and compares with the optimizer.
using Rule = std::function<void(double& p, double g, double& m, double& v, const Parameter& parameter, int t)>;

void compare(Parameters& parameters, Optimizer& optimizer, const Rule& rule, double scale = 1) {
  Values p = values_of(parameters), m = p, v = p;
  for (auto* state : {&m, &v})
    for (auto& part : *state) std::fill(part.begin(), part.end(), 0.0);
  for (int t = 1; t <= 4; ++t) {
    const auto gradients = random_gradients(parameters, static_cast<std::uint64_t>(t));
    optimizer.step(gradients, {.scale = scale});
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto g = gradients[i].to_vector();
      for (std::size_t j = 0; j < g.size(); ++j) rule(p[i][j], scale * g[j], m[i][j], v[i][j], parameters[i], t);
    }
  }
  CHECK(optimizer.steps() == 4);
  const auto found = values_of(parameters);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double tolerance = parameters[i].value.dtype() == DType::float64 ? 1e-13 : 2e-6;
    double worst = 0;
    for (std::size_t j = 0; j < p[i].size(); ++j)
      worst = std::max(worst, std::abs(p[i][j] - found[i][j]) / std::max(1.0, std::abs(p[i][j])));
    INFO(parameters[i].name, " differs by ", worst);
    CHECK(worst < tolerance);
  }
}

double decay_of(const Parameter& parameter, double decay) { return parameter.decay ? decay : 0; }

}  // namespace

TEST_CASE("sgd follows its formula") {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true})
      for (const double decay : {0.0, 0.05}) {
        if (nesterov && momentum == 0) continue;
        Parameters parameters;
        fill(parameters);
        SGD sgd(parameters, {.learning_rate = 0.1, .momentum = momentum, .nesterov = nesterov, .weight_decay = decay});
        compare(parameters, sgd, [&](double& p, double g, double& v, double&, const Parameter& parameter, int) {
          g += decay_of(parameter, decay) * p;
          v = momentum * v + g;
          p -= 0.1 * (nesterov ? g + momentum * v : v);
        });
      }
}

TEST_CASE("adam and adamw follow their formulas") {
  for (const bool decoupled : {false, true}) {
    Parameters parameters;
    fill(parameters);
    std::unique_ptr<Optimizer> adam;
    if (decoupled) adam = std::make_unique<AdamW>(parameters, AdamWAttributes{.learning_rate = 0.02, .weight_decay = 0.1});
    else adam = std::make_unique<Adam>(parameters, AdamAttributes{.learning_rate = 0.02, .weight_decay = 0.1});
    compare(
        parameters, *adam,
        [&](double& p, double g, double& m, double& v, const Parameter& parameter, int t) {
          const double decay = decay_of(parameter, 0.1);
          if (decoupled) p -= 0.02 * decay * p;
          else g += decay * p;
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          p -= 0.02 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
        },
        0.5);
  }
}

TEST_CASE("rmsprop follows its formula") {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.05}) {
      Parameters parameters;
      fill(parameters);
      RMSprop rmsprop(parameters, {.learning_rate = 0.02, .smoothing = 0.95, .momentum = momentum, .weight_decay = decay});
      CHECK(rmsprop.state().size() == (momentum == 0 ? 5 : 10));
      compare(
          parameters, rmsprop,
          [&](double& p, double g, double& square, double& v, const Parameter& parameter, int) {
            g += decay_of(parameter, decay) * p;
            square = 0.95 * square + 0.05 * g * g;
            v = momentum * v + g / (std::sqrt(square) + 1e-8);
            p -= 0.02 * v;
          },
          0.5);
    }
}

TEST_CASE("adam's first step is the learning rate, by hand") {
  Parameters parameters;
  parameters.add("p", from_vector({2}, {1, 1}, DType::float64), true);
  parameters.pack();
  Adam adam(parameters, {.learning_rate = 0.1, .epsilon = 0});
  adam.step(Gradients({from_vector({2}, {5, -0.01}, DType::float64)}));
  CHECK(parameters[0].value.to_vector()[0] == doctest::Approx(0.9).epsilon(1e-12));
  CHECK(parameters[0].value.to_vector()[1] == doctest::Approx(1.1).epsilon(1e-12));
}

TEST_CASE("parameter groups change the rate and the decay of what they contain") {
  Parameters parameters;
  fill(parameters);
  SGD sgd(
      parameters,
      {.learning_rate = 0.1,
       .weight_decay = 0.5,
       .groups = {
           {.contains = [](const Parameter& p) { return p.name == "a.bias"; }, .learning_rate_factor = 3, .weight_decay = 0.25},
           {.contains = [](const Parameter& p) { return p.name.starts_with("b."); }, .learning_rate_factor = 0},
           {.contains = [](const Parameter& p) { return p.name == "scale"; }, .weight_decay = 0}}});
  compare(parameters, sgd, [](double& p, double g, double&, double&, const Parameter& parameter, int) {
    const bool bias = parameter.name == "a.bias", frozen = parameter.name == "b.weight", scale = parameter.name == "scale";
    p -= 0.1 * (bias ? 3 : frozen ? 0 : 1) * (g + (bias ? 0.25 : scale ? 0 : 0.5) * p);
  });
}

TEST_CASE("a step is the same for any number of threads") {
  const int threads = omp_get_max_threads();
  Values results[2];
  for (const int count : {1, 3}) {
    omp_set_num_threads(count);
    Parameters parameters;
    fill(parameters);
    Adam adam(parameters);
    const auto gradients = random_gradients(parameters, 1);
    adam.step(gradients, {.scale = clip_global_norm(gradients, 0.1).scale});
    results[count == 3] = values_of(parameters);
  }
  omp_set_num_threads(threads);
  CHECK(results[0] == results[1]);
}

TEST_CASE("an optimizer continues from its saved state as if nothing had happened") {
  Values results[2];
  for (const bool interrupted : {false, true}) {
    Parameters parameters;
    fill(parameters);
    auto adam = std::make_unique<AdamW>(parameters, AdamWAttributes{.learning_rate = 0.01});
    for (std::uint64_t t = 0; t < 4; ++t) {
      if (interrupted && t == 2) {
        std::vector<NamedTensor> saved;
        for (const auto& item : adam->state())
          saved.push_back({item.name, from_vector(item.value.shape(), item.value.to_vector(), item.value.dtype())});
        CHECK(saved.size() == 10);
        CHECK(saved[0].name == "first_moment/a.weight");
        std::swap(saved[0], saved[7]);
        const auto steps = adam->steps();
        adam = std::make_unique<AdamW>(parameters, AdamWAttributes{.learning_rate = 0.01});
        adam->load_state(saved, steps);
      }
      adam->step(random_gradients(parameters, t));
    }
    results[interrupted] = values_of(parameters);
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("the state lies in one arena per element type") {
  Parameters parameters;
  fill(parameters);
  Adam adam(parameters);
  const auto state = adam.state();
  CHECK(state[0].value.storage() == state[3].value.storage());
  CHECK(state[0].value.storage() != state[2].value.storage());
  CHECK(state[0].value.is_constant());
  CHECK(SGD(parameters).state().empty());
  CHECK(SGD(parameters, {.momentum = 0.9}).state().size() == 5);
}

TEST_CASE("clipping to a global norm") {
  const Gradients gradients({from_vector({2}, {3, 0}), from_vector({1}, {4}, DType::float64), ones({0})});
  CHECK(squared_norm(gradients) == doctest::Approx(25));
  const auto clipped = clip_global_norm(gradients, 1);
  CHECK(clipped.norm == doctest::Approx(5));
  CHECK(clipped.scale == doctest::Approx(0.2).epsilon(1e-6));
  CHECK(clip_global_norm(gradients, 10).scale == 1);
  CHECK(clip_global_norm(Gradients({zeros({3})}), 1).scale == 1);
  CHECK(std::isnan(clip_global_norm(Gradients({full({1}, NAN)}), 1).scale));
  // 2^24 ones: float32 sums would stop growing.
  CHECK(squared_norm(Gradients({ones({1 << 24}), ones({3})})) == (1 << 24) + 3);
}

TEST_CASE("a step limits the norm of the scaled gradients") {
  const auto after = [](const StepOptions& options) {
    Parameters parameters;
    fill(parameters);
    SGD sgd(parameters, {.learning_rate = 0.1});
    sgd.step(random_gradients(parameters, 1), options);
    return values_of(parameters);
  };
  Parameters parameters;
  fill(parameters);
  const auto gradients = random_gradients(parameters, 1);
  const double norm = clip_global_norm(gradients, 1).norm;
  CHECK(after({.max_norm = 0.1}) == after({.scale = clip_global_norm(gradients, 0.1).scale}));
  CHECK(after({.scale = 0.5, .max_norm = norm}) == after({.scale = 0.5}));  // the scaled gradients are shorter than max_norm
  CHECK(after({.scale = -4, .max_norm = norm}) == after({.scale = -4 * clip_scale(4 * norm, norm)}));
  SGD sgd(parameters);
  CHECK_THROWS_AS(sgd.step(gradients, {.max_norm = -1}), Error);
  CHECK_THROWS_AS(sgd.step(gradients, {.max_norm = NAN}), Error);
}

TEST_CASE("averaged weights follow their recursion, and swap in and out") {
  Parameters parameters;
  fill(parameters);
  SGD sgd(parameters, {.learning_rate = 0.1});
  AveragedWeights averaged(parameters, {.decay = 0.7});
  Values expected = values_of(parameters);
  CHECK_THROWS_AS(averaged.swap(), Error);
  averaged.update();
  for (std::uint64_t t = 0; t < 3; ++t) {
    sgd.step(random_gradients(parameters, t));
    averaged.update();
    const auto now = values_of(parameters);
    for (std::size_t i = 0; i < now.size(); ++i)
      for (std::size_t j = 0; j < now[i].size(); ++j) expected[i][j] = 0.7 * expected[i][j] + 0.3 * now[i][j];
  }
  const auto before = values_of(parameters);
  averaged.swap();
  CHECK(averaged.swapped());
  const auto found = values_of(parameters);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = 0; j < found[i].size(); ++j)
      if (std::abs(found[i][j] - expected[i][j]) > 1e-5)
        FAIL_CHECK(parameters[i].name, " at ", j, ": ", found[i][j], " is not ", expected[i][j]);
  CHECK_THROWS_AS(averaged.update(), Error);
  CHECK_THROWS_AS(averaged.state(), Error);
  averaged.swap();
  CHECK(values_of(parameters) == before);
  CHECK(averaged.updates() == 4);
  AveragedWeights other(parameters);
  other.load_state(averaged.state(), averaged.updates());
  other.swap();
  CHECK(values_of(parameters) == found);
}

TEST_CASE("optimizers by name; checkpoints hold the names of their state") {
  const std::map<std::string, std::vector<std::string>> states{{"sgd", {"momentum/w"}},
                                                               {"adam", {"first_moment/w", "second_moment/w"}},
                                                               {"adamw", {"first_moment/w", "second_moment/w"}},
                                                               {"rmsprop", {"mean_square/w"}},
                                                               {"lars", {"momentum/w"}},
                                                               {"lamb", {"first_moment/w", "second_moment/w"}}};
  CHECK(optimizer_names().size() == states.size());
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    Parameters parameters;
    parameters.add("w", ones({2}), true);
    parameters.pack();
    const auto optimizer = make_optimizer(name, parameters, {.learning_rate = 0.25, .momentum = 0.5});
    CHECK(optimizer->learning_rate() == 0.25);
    std::vector<std::string> found;
    for (const auto& item : optimizer->state()) found.push_back(item.name);
    CHECK(found == states.at(name));
    optimizer->step(Gradients({ones({2})}));
    CHECK(parameters[0].value.to_vector()[0] < 1);
  }
  Parameters parameters;
  CHECK_THROWS_WITH_AS(make_optimizer("nonesuch", parameters, {}), "[optimizer] there is no optimizer nonesuch", Error);
}

TEST_CASE("optimizers refuse misuse by name") {
  Parameters parameters;
  parameters.add("w", ones({2}), true);
  CHECK_THROWS_WITH_AS(SGD{parameters}, "[optimizer] the parameters are not laid out yet; build the network first", Error);
  parameters.pack();
  CHECK_THROWS_WITH_AS(SGD(parameters, {.learning_rate = -1}), "[optimizer] the learning rate is finite and not negative, got -1",
                       Error);
  CHECK_THROWS_WITH_AS(SGD(parameters, {.nesterov = true}), "[sgd] Nesterov's rule needs momentum", Error);
  CHECK_THROWS_AS(Adam(parameters, {.beta1 = 1}), Error);
  CHECK_THROWS_WITH_AS(RMSprop(parameters, {.smoothing = 1}), "[rmsprop] smoothing is in [0, 1), got 1", Error);
  CHECK_THROWS_WITH_AS(RMSprop(parameters, {.momentum = -0.1}), "[rmsprop] momentum is in [0, 1), got -0.1", Error);
  CHECK_THROWS_AS(clip_global_norm(Gradients(), 0), Error);
  Adam adam(parameters);
  CHECK_THROWS_WITH_AS(adam.step(Gradients()), "[optimizer] 0 gradients for 1 parameters, made for 1", Error);
  CHECK_THROWS_WITH_AS(adam.step(Gradients({ones({3})})),
                       "[optimizer] the gradient of w is float32 [3], the parameter float32 [2]", Error);
  CHECK_THROWS_WITH_AS(adam.load_state({}, 1), "[optimizer] the state has no first_moment/w", Error);
  CHECK(adam.steps() == 0);
}

TEST_CASE("optimizers run on the dry device") {
  UseDevice dry(DeviceKind::dry);
  Parameters parameters;
  parameters.add("w", ones({1 << 20, 1 << 12}), true);
  parameters.pack();
  Adam adam(parameters);
  const Gradients gradients({ones({1 << 20, 1 << 12})});
  adam.step(gradients, {.scale = clip_global_norm(gradients, 1).scale});
  AveragedWeights averaged(parameters);
  averaged.update();
  averaged.swap();
  CHECK(adam.steps() == 1);
}

TEST_CASE("learning-rate schedules") {
  CHECK(schedule::Constant{.rate = 0.3}(1000) == 0.3);

  const schedule::Cosine cosine{.rate = 1, .steps = 100, .final_rate = 0.1};
  CHECK(cosine(0) == doctest::Approx(1));
  CHECK(cosine(50) == doctest::Approx(0.55));
  CHECK(cosine(25) == doctest::Approx(0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
  CHECK(cosine(100) == doctest::Approx(0.1));
  CHECK(cosine(500) == doctest::Approx(0.1));

  const schedule::Step step{.rate = 8, .milestones = {10, 20, 20, 30}, .factor = 0.5};
  CHECK(step(0) == 8);
  CHECK(step(9) == 8);
  CHECK(step(10) == 4);
  CHECK(step(20) == 1);
  CHECK(step(1000) == 0.5);

  const schedule::Polynomial polynomial{.rate = 2, .steps = 10, .final_rate = 1, .power = 2};
  CHECK(polynomial(0) == doctest::Approx(2));
  CHECK(polynomial(5) == doctest::Approx(1.25));
  CHECK(polynomial(10) == doctest::Approx(1));
  CHECK(polynomial(11) == doctest::Approx(1));
  CHECK(schedule::Polynomial{.rate = 2, .steps = 4}(1) == doctest::Approx(1.5));

  const schedule::WarmUp warm{.steps = 10, .then = cosine, .from = 0.2};
  CHECK(warm(0) == doctest::Approx(0.2));
  CHECK(warm(5) == doctest::Approx(0.6));
  CHECK(warm(10) == doctest::Approx(1));
  CHECK(warm(60) == doctest::Approx(0.55));
  const schedule::WarmUp own{.steps = 2, .then = [](std::int64_t at) { return 1.0 + static_cast<double>(at); }};
  CHECK(own(1) == doctest::Approx(0.5));
  CHECK(own(5) == doctest::Approx(4));
  CHECK(schedule::WarmUp{.then = step}(0) == 8);
  CHECK_THROWS_WITH_AS((schedule::Cosine{.steps = 0}(0)), "[schedule] cosine over 0 steps; at least 1 is needed", Error);
  CHECK_THROWS_AS((schedule::Step{.milestones = {3, 2}}(0)), Error);
}
