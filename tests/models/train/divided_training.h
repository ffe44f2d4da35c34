#pragma once
// A training whose optimizer has enough state to be divided among ranks.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "comm/distributed/optimizer_reductions.h"
#include "framework/optim/loss_scale.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::testing::divided {

// 288,000 weights: one bucket of one matrix, and one of the others, whose rows no number of ranks divides.
struct Net : nn::Module {
  nn::Linear first{*this, "first", {.out = 513, .activation = Activation::leaky_relu(0.1)}};
  nn::Linear second{*this, "second", {.out = 512, .activation = Activation::leaky_relu(0.1)}};
  nn::Linear third{*this, "third", {.out = 11}};
  nn::Linear last{*this, "last", {.out = 3}};
  Tensor operator()(const Tensor& x) override { return last(third(second(first(x)))); }
};

constexpr std::int64_t samples = 12;

struct Case {
  std::string optimizer = "adam";
  double clip = 0;
  int parts = 1;          // micro-batches
  bool overflow = false;  // in step 1, on the last rank
  bool frozen = false;    // `second`, from step 1 on
  bool average = false;   // of weights
  bool reads_gradients = false;
};

struct Result {
  std::vector<std::vector<double>> parameters;  // and averages
  std::vector<std::vector<double>> gradients;   // of the last step
  std::int64_t state_bytes = 0, all_state = 0, skipped = 0;
  std::string work;
};

inline GridPtr grid_on(const Communicator& world) { return make_grid(world, {.sample = world.size()}); }

struct Training {
  Communicator world;
  Case how;
  Net net;
  std::unique_ptr<Optimizer> optimizer;
  LayoutPtr layout;

  Training(const Communicator& comm, const Case& c, bool replicated) : world(comm), how(c) {
    layout = split_layout(grid_on(comm), {samples, 20}, {0, -1, -1, -1});
    net.build(layout, {.seed = 4});
    optimizer = make_optimizer(
        c.optimizer, net.parameters(),
        {.learning_rate = c.optimizer == "lars" ? 1.0 : 1e-3, .momentum = 0.9, .weight_decay = 1e-2, .replicated = replicated});
  }

  Gradients gradients(int step, double factor = 1) {
    Gradients result;
    for (int part = 0; part < how.parts; ++part) {
      const Philox random{7, static_cast<std::uint64_t>(10 * step + part)};
      const Tensor x = constant(random_normal(layout->global, random, 0, 1, DType::float32, layout));
      const auto target = split_layout(std::dynamic_pointer_cast<const Grid>(layout->grid), {samples, 3}, {0, -1, -1, -1});
      const Tensor y = constant(random_normal(target->global, random.child(1), 0, 1, DType::float32, target));
      Tape tape(net);
      const auto loss = mse(net(x), y) * factor;
      result = how.parts == 1 ? tape.gradient(loss) : tape.gradient(loss, {.accumulate = part + 1 < how.parts});
    }
    return result;
  }

  Result run(int first, int steps) {
    Result result;
    LossScale scale({.start = 256, .ranks = world.size(), .agree = all_agree(world)});
    std::unique_ptr<AveragedWeights> averages;
    if (how.average) averages = std::make_unique<AveragedWeights>(net, AveragedWeightsAttributes{.decay = 0.5});
    for (int step = first; step < first + steps; ++step) {
      if (how.frozen && step == 1) net.parameters().freeze("second*");
      if (!how.overflow) {
        const auto all = gradients(step);
        if (how.reads_gradients && step + 1 == first + steps)
          for (const auto& each : all.tensors()) result.gradients.push_back(each.to_vector());
        optimizer->step(all, {.max_norm = how.clip});
      } else {
        const bool here = step == 1 && world.rank() == world.size() - 1;
        const auto all = gradients(step, here ? std::numeric_limits<double>::infinity() : scale.value());
        if (const auto taken = scale.unscaled(all, how.clip)) optimizer->step(all, {.scale = taken->scale});
      }
      if (averages) averages->update();
    }
    result.skipped = scale.skipped();
    for (const auto& value : net.parameters().tensors()) result.parameters.push_back(value.to_vector());
    if (averages)
      for (const auto& [name, value] : averages->state()) result.parameters.push_back(value.to_vector());
    for (const auto& [name, value] : optimizer->state())
      result.state_bytes += value.bytes(), result.all_state += global_shape(value).elements() * size_of(value.dtype());
    result.work = optimizer->work();
    return result;
  }
};

}  // namespace mpigrad::testing::divided
