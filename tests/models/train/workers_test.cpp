// Virtual workers: the same numbers on any number of ranks; averages of gradients and of weights; the noise scale against its
// definition.

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/sources/function.h"
#include "models/nn/layers.h"
#include "models/train/workers/noise_scale.h"
#include "models/train/workers/workers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// A network with a norm, whose statistics belong to each worker, and a layer that draws random numbers.
struct Network : nn::Module {
  explicit Network(bool plain) : plain_(plain) {}
  Tensor operator()(const Tensor& x) override {
    auto y = conv_(x);
    y = plain_ ? tanh(y) : dropout_(norm_(y));
    return linear_(flatten(y));
  }
  bool plain_;
  nn::Conv3d conv_{*this, "conv", {.out = 3, .kernel = {1, 3, 3}, .padding = {0, 1, 1}}};
  nn::BatchNorm norm_{*this, "norm", {.activation = Activation::relu}};
  nn::Dropout dropout_{*this, "dropout", {.keep = 0.8}};
  nn::Linear linear_{*this, "linear", {.out = 2}};
};

constexpr std::int64_t side = 4;

// Samples of a step for all workers; those of one rank are a part of them.
std::pair<Tensor, Tensor> samples(std::int64_t step, std::int64_t first, std::int64_t count) {
  std::vector<double> x, y;
  for (std::int64_t i = first; i < first + count; ++i) {
    const Philox random{99, static_cast<std::uint64_t>(step * 1000 + i)};
    double sum = 0;
    for (std::uint64_t j = 0; j < side * side; ++j) x.push_back(random.normal(j)), sum += x.back() * std::cos(double(j));
    y.push_back(sum), y.push_back(sum * sum / 8);
  }
  return {from_vector({count, 1, side, side, 1}, x, DType::float64), from_vector({count, 2}, y, DType::float64)};
}

struct Outcome {
  std::vector<double> losses, small, big, state;
};

Outcome run(const Communicator& world, const WorkersOptions& options, std::int64_t batch, bool plain = false) {
  Workers workers(
      world, [&] { return std::make_unique<Network>(plain); }, {batch, 1, side, side, 1}, {.seed = 5, .dtype = DType::float64},
      [](Parameters& parameters) {
        return std::make_unique<SGD>(parameters, SGDAttributes{.learning_rate = 0.05, .momentum = 0.9});
      },
      options);
  Outcome outcome;
  for (std::int64_t step = 0; step < 7; ++step) {
    const auto [x, y] = samples(step, workers.first() * batch, workers.local() * batch);
    const auto result = workers.step(x, y, mse);
    outcome.losses.push_back(result.loss), outcome.small.push_back(result.small_squared_norm);
    outcome.big.push_back(result.big_squared_norm);
  }
  auto& mean = workers.mean();
  for (const auto& x : mean.parameters().tensors())
    for (const double value : x.to_vector()) outcome.state.push_back(value);
  for (const auto& [name, x] : mean.buffers())
    for (const double value : x.to_vector()) outcome.state.push_back(value);
  CHECK(workers.copies() == (options.synchronisation == Synchronisation::gradients ? 1 : workers.local() + 1));
  CHECK(workers.bytes() > 0);
  return outcome;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!std::isnan(a[i]) || !std::isnan(b[i])) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_CASE("four logical workers are the same on one, two and four ranks") {
  for (const auto how : {Synchronisation::gradients, Synchronisation::weights, Synchronisation::gossip})
    for (const std::int64_t every : {1, 3}) {
      const WorkersOptions options{.workers = 4, .synchronisation = how, .every = every, .seed = 8};
      Outcome one;
      run_threads(1, [&](const auto& transport) { one = run(Communicator(transport), options, 3); });
      CHECK(one.losses.back() < one.losses.front());
      for (const int ranks : {2, 4})
        run_threads(ranks, [&](const auto& transport) {
          const auto many = run(Communicator(transport), options, 3);
          CAPTURE(static_cast<int>(how));
          CAPTURE(ranks);
          CHECK(difference(one.losses, many.losses) < 1e-12);
          CHECK(difference(one.small, many.small) < 1e-12);
          CHECK(difference(one.big, many.big) < 1e-12);
          CHECK(difference(one.state, many.state) < 1e-12);
        });
    }
}

TEST_CASE("ways of synchronising differ, and so do dropout masks of workers") {
  run_threads(1, [&](const auto& transport) {
    const Communicator world(transport);
    const auto gradients = run(world, {.workers = 4}, 3);
    const auto weights = run(world, {.workers = 4, .synchronisation = Synchronisation::weights, .every = 3}, 3);
    const auto gossip = run(world, {.workers = 4, .synchronisation = Synchronisation::gossip, .every = 3, .seed = 1}, 3);
    const auto other = run(world, {.workers = 4, .synchronisation = Synchronisation::gossip, .every = 3, .seed = 2}, 3);
    CHECK(difference(gradients.state, weights.state) > 1e-6);
    CHECK(difference(weights.state, gossip.state) > 1e-6);
    CHECK(difference(gossip.state, other.state) > 1e-9);
  });
}

TEST_CASE("workers without norms and dropout are one worker with all samples") {
  run_threads(2, [&](const auto& transport) {
    const auto four = run(Communicator(transport), {.workers = 4}, 3, true);
    Outcome one;
    run_threads(1, [&](const auto& alone) { one = run(Communicator(alone), {.workers = 1}, 12, true); });
    CHECK(difference(one.losses, four.losses) < 1e-12);
    CHECK(difference(one.state, four.state) < 1e-12);
    CHECK(difference(one.big, four.big) < 1e-10);
    // Averaging weights after every step of plain gradient descent equals averaging gradients; each worker has its own momentum.
    const auto averaged =
        run(Communicator(transport), {.workers = 4, .synchronisation = Synchronisation::weights, .every = 1}, 3, true);
    CHECK(std::abs(averaged.losses[1] - four.losses[1]) < 1e-12);
  });
}

TEST_CASE("the noise scale is that of its definition") {
  // Per-sample gradients of a network with fixed weights, one by one.
  Network net(true);
  net.build({1, 1, side, side, 1}, {.seed = 5, .dtype = DType::float64});
  const auto gradient = [&](const Tensor& x, const Tensor& y) {
    Tape tape(net);
    const auto loss = mse(net(x), y);
    std::vector<double> values;
    const auto gradients = tape.gradient(loss);
    for (const auto& g : gradients.tensors())
      for (const double value : g.to_vector()) values.push_back(value);
    return values;
  };
  constexpr std::int64_t count = 256;
  std::vector<std::vector<double>> own;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [x, y] = samples(0, i, 1);
    own.push_back(gradient(x, y));
  }
  std::vector<double> mean(own[0].size());
  for (const auto& g : own)
    for (std::size_t j = 0; j < g.size(); ++j) mean[j] += g[j] / count;
  double squared = 0, trace = 0;
  for (const double m : mean) squared += m * m;
  for (const auto& g : own)
    for (std::size_t j = 0; j < g.size(); ++j) trace += (g[j] - mean[j]) * (g[j] - mean[j]) / count;

  // Workers that draw from these samples with replacement, with fixed weights.
  constexpr int workers = 4;
  constexpr std::int64_t batch = 2;
  NoiseScale noise(batch, workers * batch, 0.9995);
  const Philox random{3, 0};
  for (std::uint64_t step = 0; step < 3000; ++step) {
    std::vector<double> big(mean.size());
    double small = 0;
    for (std::uint64_t w = 0; w < workers; ++w) {
      std::vector<double> g(mean.size());
      for (std::uint64_t b = 0; b < batch; ++b) {
        const auto& sample = own[random.below((step * workers + w) * batch + b, count)];
        for (std::size_t j = 0; j < g.size(); ++j) g[j] += sample[j] / batch;
      }
      small += std::inner_product(g.begin(), g.end(), g.begin(), 0.0) / workers;
      for (std::size_t j = 0; j < g.size(); ++j) big[j] += g[j] / workers;
    }
    noise.add(small, std::inner_product(big.begin(), big.end(), big.begin(), 0.0));
  }
  CHECK(noise.variance() == doctest::Approx(trace).epsilon(0.05));
  CHECK(noise.squared_gradient() == doctest::Approx(squared).epsilon(0.1));
  CHECK(noise.value() == doctest::Approx(trace / squared).epsilon(0.1));
}

TEST_CASE("norms that workers report are those of their gradients") {
  run_threads(2, [&](const auto& transport) {
    const auto four = run(Communicator(transport), {.workers = 4}, 3, true);
    Network net(true);
    net.build({3, 1, side, side, 1}, {.seed = 5, .dtype = DType::float64});
    double small = 0;
    std::vector<double> mean;
    for (std::int64_t w = 0; w < 4; ++w) {
      const auto [x, y] = samples(0, 3 * w, 3);
      Tape tape(net);
      const auto gradients = tape.gradient(mse(net(x), y));
      small += squared_norm(gradients) / 4;
      std::size_t at = 0;
      for (const auto& g : gradients.tensors())
        for (const double value : g.to_vector()) {
          if (at == mean.size()) mean.push_back(0);
          mean[at++] += value / 4;
        }
    }
    CHECK(four.small[0] == doctest::Approx(small).epsilon(1e-12));
    CHECK(four.big[0] == doctest::Approx(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0)).epsilon(1e-12));
  });
}

TEST_CASE("data-parallel training measures its noise scale as workers do") {
  data::FunctionSamples all{.size = 48, .extents = {1, side, side}, .target_names = {"a", "b"}};
  all.values = [](std::int64_t sample, const Box& box, std::span<float> out) {
    REQUIRE(box.elements() == side * side);
    const Philox random{7, static_cast<std::uint64_t>(sample)};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(random.normal(i));
  };
  all.targets = [](std::int64_t sample) { return std::vector{std::sin(double(sample)), std::cos(3.0 * double(sample))}; };
  const auto source = std::make_shared<data::FunctionSource>(all);
  const LossFunction loss = mse;
  run_threads(4, [&](const auto& transport) {
    const Communicator world(transport);
    const auto grid = make_grid(world, {.sample = 4});
    const data::Loader loader(source, {.grid = grid, .batch = 12, .seed = 3, .dtype = DType::float64});
    Network net(true);
    net.build(loader.layout(), {.seed = 5, .dtype = DType::float64});
    SGD sgd(net, {.learning_rate = 0.05});
    GradientNoise measured;
    CHECK(std::isnan(measured.value()));
    fit(net, sgd, loader, loss, world, {.epochs = 3, .noise = &measured});
    CHECK(measured.steps() == 12);

    Workers workers(
        world, [] { return std::make_unique<Network>(true); }, {3, 1, side, side, 1}, {.seed = 5, .dtype = DType::float64},
        [](Parameters& parameters) { return std::make_unique<SGD>(parameters, SGDAttributes{.learning_rate = 0.05}); },
        {.workers = 4});
    NoiseScale noise(3, 12);
    CriticalBatch critical(12);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch)
      for (const auto& batch : loader.epoch(epoch)) {
        const auto step = workers.step(batch.x, batch.y, loss);
        noise.add(step.small_squared_norm, step.big_squared_norm);
        critical.add(noise.value());
      }
    CHECK(measured.value() == doctest::Approx(noise.value()).epsilon(1e-9));
    CHECK(measured.critical_batch() == doctest::Approx(critical.value()).epsilon(1e-9));
    // Ranks that share samples have no gradients of their own samples.
    const auto depth = make_grid(world, {.sample = 2, .height = 2});
    const data::Loader shared(source, {.grid = depth, .batch = 12, .dtype = DType::float64});
    Network other(true);
    other.build(shared.layout(), {.dtype = DType::float64});
    SGD also(other, {.learning_rate = 0.05});
    GradientNoise none;
    CHECK_THROWS_WITH_AS(fit(other, also, shared, loss, world, {.noise = &none}), doctest::Contains("samples of their own"),
                         Error);
  });
}

TEST_CASE("the law of large batches") {
  CHECK(statistical_efficiency(4, 1, 32) == 1);
  CHECK(statistical_efficiency(4, 64, 32) == doctest::Approx(0.125));
  // A constant noise scale is the critical batch; a varying one is weighted by the progress of its steps.
  CriticalBatch same(8), changing(8);
  CHECK(std::isnan(same.value()));
  for (int i = 0; i < 5; ++i) same.add(32);
  same.add(std::nan(""));
  CHECK(same.value() == doctest::Approx(32));
  changing.add(8), changing.add(24);
  CHECK(changing.value() == doctest::Approx((0.5 * 8 + 0.25 * 24) / 0.75));
  // Steps with estimates beyond either limit count: without progress, and without noise.
  CriticalBatch lost(8), quiet(8);
  lost.add(std::numeric_limits<double>::infinity());
  CHECK(std::isinf(lost.value()));
  lost.add(8);
  CHECK(lost.value() == doctest::Approx((8 + 0.5 * 8) / 0.5));
  quiet.add(8), quiet.add(-3);
  CHECK(quiet.value() == doctest::Approx(0.5 * 8 / 1.5));
  // Exact norms of |G|^2 = 2 and tr(Sigma) = 6.
  NoiseScale noise(2, 8);
  CHECK(std::isnan(noise.value()));
  for (int i = 0; i < 3; ++i) noise.add(2 + 6.0 / 2, 2 + 6.0 / 8);
  CHECK(noise.variance() == doctest::Approx(6));
  CHECK(noise.squared_gradient() == doctest::Approx(2));
  CHECK(noise.value() == doctest::Approx(3));
  // A step that overflowed does not count.
  noise.add(std::numeric_limits<double>::infinity(), 1), noise.add(1, std::nan(""));
  CHECK(noise.steps() == 3);
  CHECK(noise.value() == doctest::Approx(3));
  NoiseScale drowned(2, 8);
  drowned.add(10, 1);
  CHECK(std::isinf(drowned.value()));
}

TEST_CASE("what workers refuse") {
  CHECK_THROWS_WITH_AS(NoiseScale(4, 4), doctest::Contains("two batch sizes"), Error);
  CHECK_THROWS_WITH_AS(NoiseScale(4, 8, 1), doctest::Contains("decay"), Error);
  run_threads(2, [&](const auto& transport) {
    CHECK_THROWS_WITH_AS(run(Communicator(transport), {.workers = 3}, 2), doctest::Contains("2 ranks cannot share 3 workers"),
                         Error);
    CHECK_THROWS_WITH_AS(run(Communicator(transport), {.workers = 4, .every = 0}, 2), doctest::Contains("at least one step"),
                         Error);
  });
  run_threads(1, [&](const auto& transport) {
    Workers workers(
        Communicator(transport), [] { return std::make_unique<Network>(true); }, {2, 1, side, side, 1}, {.dtype = DType::float64},
        [](Parameters& parameters) { return std::make_unique<SGD>(parameters); }, {.workers = 2});
    const auto [x, y] = samples(0, 0, 3);
    const LossFunction loss = mse;
    CHECK_THROWS_WITH_AS(workers.step(x, y, loss), doctest::Contains("2 workers cannot share"), Error);
    const auto [fine_x, fine_y] = samples(0, 0, 4);
    const auto nan = [](const Tensor& p, const Tensor& t) { return mse(p, t) * std::nan(""); };
    CHECK_THROWS_WITH_AS(workers.step(fine_x, fine_y, nan), doctest::Contains("loss is nan in step 1"), Error);
  });
}

}  // namespace
}  // namespace mpigrad
