// Optimizers, clipping and averages of weights on a GPU, compared with the CPU.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/to_device.h"
#include "tests/models/train/values.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// A matrix, a bias, float64, a parameter of more than one block of the pass over parameters, and an empty one.
void fill(Parameters& parameters, DeviceKind device) {
  const std::vector<std::pair<Shape, DType>> list{{{7, 13}, DType::float32},    {{13}, DType::float32}, {{5}, DType::float64},
                                                  {{101, 211}, DType::float32}, {{0}, DType::float32},  {{4096}, DType::float64}};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto value = from_vector(list[i].first, numbers(list[i].first, list[i].second, i), list[i].second);
    parameters.add(fmt::format("p{}", i), to(value, device), i % 2 == 0);
  }
  const UseDevice use(device);
  parameters.pack();
}

template <class Make>
void check_optimizer(const std::string& name, const Make& make) {
  INFO(name);
  std::vector<std::vector<Values>> results;
  for (const auto device : {DeviceKind::cpu, DeviceKind::cuda}) {
    Parameters parameters;
    fill(parameters, device);
    const UseDevice use(device);
    auto optimizer = make(parameters);
    for (int step = 0; step < 3; ++step) {
      std::vector<Tensor> gradients;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto& value = parameters[i].value;
        const auto seed = 100 * static_cast<std::uint64_t>(step + 1) + i;
        gradients.push_back(from_vector(value.shape(), numbers(value.shape(), value.dtype(), seed), value.dtype()));
      }
      optimizer->step(Gradients(gradients), {.scale = 0.5});
    }
    std::vector<Values> values;
    for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters[i].value.to_vector());
    results.push_back(values);
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    INFO("parameter ", i);
    CHECK(relative_error(results[1][i], results[0][i]) < (i == 2 || i == 5 ? 1e-13 : 2e-6));
  }
}

}  // namespace

TEST_CASE("gpu: optimizers") {
  if (no_gpu("gpu: optimizers")) return;
  check_optimizer(
      "sgd", [](Parameters& p) { return std::make_unique<SGD>(p, SGDAttributes{.learning_rate = 0.1, .weight_decay = 0.05}); });
  check_optimizer("momentum", [](Parameters& p) {
    return std::make_unique<SGD>(p, SGDAttributes{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05});
  });
  check_optimizer("adamw", [](Parameters& p) {
    return std::make_unique<AdamW>(p, AdamWAttributes{.learning_rate = 0.01, .weight_decay = 0.1});
  });
  for (const double momentum : {0.0, 0.9})
    check_optimizer(momentum == 0 ? "rmsprop" : "rmsprop with momentum", [momentum](Parameters& p) {
      return std::make_unique<RMSprop>(p, RmspropAttributes{.momentum = momentum, .weight_decay = 0.1});
    });
  check_optimizer("adam", [](Parameters& p) {
    return std::make_unique<Adam>(p, AdamAttributes{.learning_rate = 0.01, .weight_decay = 0.1});
  });
}

TEST_CASE("gpu: norms, clipping and averaged weights") {
  if (no_gpu("gpu: norms, clipping and averaged weights")) return;
  std::vector<std::vector<Values>> results;
  std::vector<double> norms;
  for (const auto device : {DeviceKind::cpu, DeviceKind::cuda}) {
    Parameters parameters;
    fill(parameters, device);
    const UseDevice use(device);
    const Gradients gradients(parameters.tensors());
    norms.push_back(clip_global_norm(gradients, 1).norm);
    AveragedWeights averages(parameters, {.decay = 0.75});
    SGD sgd(parameters, {.learning_rate = 0.5});
    for (int step = 0; step < 3; ++step) {
      sgd.step(Gradients(parameters.tensors()), {.scale = clip_global_norm(gradients, 1).scale});
      averages.update();
    }
    for (int swap = 0; swap < 2; ++swap) {
      averages.swap();
      std::vector<Values> values;
      for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters[i].value.to_vector());
      results.push_back(values);
    }
  }
  CHECK(norms[1] == doctest::Approx(norms[0]).epsilon(1e-12));
  for (std::size_t which : {0U, 1U})
    for (std::size_t i = 0; i < results[0].size(); ++i)
      CHECK(relative_error(results[2 + which][i], results[which][i]) < (i == 2 || i == 5 ? 1e-12 : 2e-6));
  CHECK(results[0][0] != results[1][0]);
  const auto run = [](DeviceKind on) {
    const UseDevice device(on);
    Parameters parameters;
    parameters.add("a", random_normal({70, 100}, {.key = 1}), true);
    parameters.pack();
    SGD sgd(parameters, {.learning_rate = 0.5});
    AveragedWeights averages(parameters, {.decay = 0.75});
    Values values;
    for (std::uint64_t step = 0; step < 3; ++step) {
      sgd.step(Gradients({random_normal({70, 100}, {.key = 2 + step})}));
      averages.update();
      averages.swap();
      append(values, parameters[0].value);
      averages.swap();
    }
    append(values, parameters[0].value);
    return values;
  };
  CHECK(difference(run(DeviceKind::cuda), run(DeviceKind::cpu)) < 1e-5);
}

TEST_CASE("gpu: steps limited to a norm") {
  if (no_gpu("gpu: steps limited to a norm")) return;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool use_adam : {false, true})
    for (const double scale : {1.0, 0.25, -2.0})
      for (const double max_norm : {0.0, 0.5, 1e6})
        for (const double special : {1.0, infinity}) {
          INFO((use_adam ? "Adam" : "SGD"), ", scale ", scale, ", norm at most ", max_norm, ", special ", special);
          const auto after = [&](DeviceKind on) {
            const UseDevice device(on);
            Parameters parameters;
            parameters.add("a", random_normal({70, 100}, {.key = 1}), true);
            parameters.add("b", random_normal({5}, {.key = 2}, 0, 1, DType::float64), false);
            parameters.pack();
            std::unique_ptr<Optimizer> optimizer;
            if (use_adam) optimizer = std::make_unique<Adam>(parameters, AdamAttributes{.learning_rate = 0.1});
            else optimizer = std::make_unique<SGD>(parameters, SGDAttributes{.learning_rate = 0.1, .weight_decay = 0.1});
            for (std::uint64_t step = 0; step < 2; ++step)
              optimizer->step(Gradients({random_normal({70, 100}, {.key = 3 + step}) * special,
                                         random_normal({5}, {.key = 5 + step}, 0, 1, DType::float64)}),
                              {.scale = scale, .max_norm = max_norm});
            Values values;
            for (const auto& value : parameters.tensors()) append(values, value);
            return values;
          };
          const auto expected = after(DeviceKind::cpu), got = after(DeviceKind::cuda);
          REQUIRE(expected.size() == got.size());
          double worst = 0;
          for (std::size_t i = 0; i < got.size(); ++i) {
            if (std::isfinite(expected[i]) != std::isfinite(got[i])) worst = infinity;
            else if (std::isfinite(got[i])) worst = std::max(worst, std::abs(got[i] - expected[i]));
          }
          CHECK(worst < 1e-5);
        }
}
