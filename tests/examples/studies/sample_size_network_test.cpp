// The network of the study of sample sizes: statistics that settle, the same on all ranks.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/distributed/redistribute.h"
#include "comm/transport/transport.h"
#include "examples/studies/sample_size/study.h"
#include "framework/engine/tape.h"
#include "models/nn/module.h"
#include "ops/random/random.h"

namespace mpigrad::sample_size {
namespace {

Tensor buffer_of(nn::Module& net, const std::string& name) {
  for (const auto& [path, buffer] : net.buffers())
    if (path == name) return buffer;
  FAIL("no buffer " << name);
  return {};
}

TEST_CASE("sample_size: statistics of the norm are polynomially decaying averages over all steps") {
  const auto net = make_network("pyramid", 4);
  net->build({2, 16, 16, 16, 4}, {.seed = 1});
  constexpr int steps = 6;
  // The features behind the convolutions, which training does not change here: their mean follows from the norm's own.
  std::vector<std::vector<double>> means;
  for (int t = 1; t <= steps; ++t) {
    const auto x = random_normal({2, 16, 16, 16, 4}, {.key = static_cast<std::uint64_t>(t)}, 0.5, 0.3);
    // One step alone, by a network that has seen nothing.
    const auto fresh = make_network("pyramid", 4);
    fresh->build({2, 16, 16, 16, 4}, {.seed = 1});
    fresh->train(), (*fresh)(x);
    means.push_back(buffer_of(*fresh, "norm.mean").to_vector());
    net->train(), (*net)(x);
  }
  CHECK(buffer_of(*net, "norm.steps").item() == steps);
  const auto mean = buffer_of(*net, "norm.mean").to_vector(), variance = buffer_of(*net, "norm.variance").to_vector();
  REQUIRE(mean.size() == 16 * 4 * 3);  // filters, redshifts, scales
  // avg_t = (1 - 4 / (t + 3)) avg_(t-1) + 4 / (t + 3) x_t, whose weights are those of t (t + 1) (t + 2).
  double all = 0;
  for (int t = 1; t <= steps; ++t) all += t * (t + 1.0) * (t + 2);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    double expected = 0;
    for (int t = 1; t <= steps; ++t) expected += t * (t + 1.0) * (t + 2) / all * means[static_cast<std::size_t>(t - 1)][c];
    CHECK(mean[c] == doctest::Approx(expected).epsilon(1e-4).scale(1e-2));
    CHECK(variance[c] > 0);
  }
  // Evaluation changes nothing.
  {
    const nn::EvaluationMode mode(*net);
    (*net)(random_normal({2, 16, 16, 16, 4}, {.key = 99}, 0.5, 0.3));
  }
  CHECK(buffer_of(*net, "norm.steps").item() == steps);
}

TEST_CASE("sample_size: ranks that share samples have one network's statistics and predictions") {
  const Shape batch{4, 16, 16, 16, 4};
  const auto predict = [&](const Communicator& world, const GridExtents& extents) {
    const auto layout = activation_layout(make_grid(world, extents), batch);
    const auto net = make_network("pyramid", 4);
    net->build(layout, {.seed = 1});
    const auto x = random_normal(batch, {.key = 5}, 0.5, 0.3, DType::float32, layout);
    net->train();
    for (int t = 0; t < 3; ++t) (*net)(x);
    const nn::EvaluationMode mode(*net);
    return gather_all((*net)(x)).to_vector();
  };
  std::vector<double> one;
  run_threads(1, [&](const auto& transport) { one = predict(Communicator(transport), {}); });
  for (const auto& extents : {GridExtents{.sample = 2}, GridExtents{.depth = 2}})
    run_threads(2, [&](const auto& transport) {
      const auto two = predict(Communicator(transport), extents);
      REQUIRE(two.size() == one.size());
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(two[i] == doctest::Approx(one[i]).epsilon(1e-4).scale(0.1));
    });
}

}  // namespace
}  // namespace mpigrad::sample_size
