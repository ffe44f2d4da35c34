// Micro-batches of a step with labels that are ignored: gradients and losses are those of the whole batch.

#include <doctest/doctest.h>

#include <cmath>

#include "models/data/sources/memory.h"
#include "models/losses/segmentation.h"
#include "models/nn/layers.h"
#include "models/train/training.h"
#include "ops/array/creation.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t samples = 4, classes = 3;

struct Pointwise : nn::Module {
  Tensor operator()(const Tensor& x) override { return conv(x); }
  nn::Conv3d conv{*this, "conv", {.out = classes, .kernel = 1}};
};

// Labels of which each sample ignores another number of cells; the third sample ignores all.
data::SourcePtr source() {
  std::vector<double> values, labels;
  const Philox random{5, 1};
  for (std::size_t i = 0; i < samples * 4 * 3 * 2; ++i) {
    values.push_back(random.normal(2 * i));
    const auto sample = i / 24;
    const bool ignored = sample == 2 || random.uniform(2 * i + 1) < 0.25 * static_cast<double>(sample);
    labels.push_back(ignored ? -1 : static_cast<double>(random.below(1000 + i, classes)));
  }
  return data::from_tensors(from_vector({samples, 4, 3, 2, 1}, values, DType::float64),
                            from_vector({samples, 4, 3, 2}, labels, DType::int64), {.per_cell = true});
}

struct Step {
  std::vector<double> weights;
  double loss = 0;
};
// One step of gradient descent at rate 1, so that weights differ as gradients do.
Step step_of(const Communicator& comm, const LossFunction& loss, std::int64_t accumulate, std::int64_t batch, bool whole_step) {
  const data::Loader loader(
      source(),
      {.grid = make_grid(comm, {.depth = comm.size()}), .batch = batch, .dtype = DType::float64, .target_dtype = DType::int64});
  Pointwise net;
  net.build(loader.layout(), {.seed = 3, .dtype = DType::float64});
  SGD sgd(net, SGDAttributes{.learning_rate = 1});
  Step result;
  FitOptions options{.accumulate = accumulate};
  options.whole_step = whole_step;
  options.after_epoch = [&](const EpochReport& report) { return result.loss = report.loss, std::string(); };
  fit(net, sgd, loader, loss, comm, options);
  for (const auto& each : net.parameters().tensors())
    for (const double value : each.to_vector()) result.weights.push_back(value);
  return result;
}

double difference(const Step& a, const Step& b) {
  double most = std::abs(a.loss - b.loss);
  for (std::size_t i = 0; i < a.weights.size(); ++i) most = std::max(most, std::abs(a.weights[i] - b.weights[i]));
  return most;
}

}  // namespace

TEST_CASE("training: with ignored labels micro-batches give the gradient of the whole batch") {
  const std::vector<std::pair<const char*, LossFunction>> losses{
      {"cross-entropy", {cross_entropy, {.ignore_index = -1}}},
      {"dice-ce", {segmentation::dice_cross_entropy_loss, {.ignored = -1}}},
      {"dice", {segmentation::soft_dice_loss, {.ignored = -1}}},
      {"focal", {segmentation::focal_loss, {.ignored = -1}}}};
  for (const auto& [loss_name, function] : losses) {
    const std::string name = loss_name;
    const auto& loss = function;
    Step one;
    for (const int ranks : {1, 2})
      check_on_ranks(ranks, name, [&](const Communicator& comm) {
        const auto whole = step_of(comm, loss, 1, samples, true);
        if (ranks == 1) one = whole;
        require(difference(whole, one) < 1e-12, "[test] {}: another gradient on {} ranks", name, ranks);
        for (const auto& [accumulate, batch] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {4, 1}, {2, 3}}) {
          const auto parts = step_of(comm, loss, accumulate, batch, true);
          require(difference(parts, whole) < 1e-12, "[test] {}: micro-batches of {}: {:.3g} apart", name, batch,
                  difference(parts, whole));
        }
        // Means over the labels of each micro-batch are something else, except for means over samples.
        const auto own = step_of(comm, loss, 4, 1, false);
        require((difference(own, whole) > 1e-3) == (name != "dice"), "[test] {}: own means are {:.3g} apart", name,
                difference(own, whole));
      });
  }
}
