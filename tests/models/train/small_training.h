#pragma once
// A training of a small network in float64 on generated samples.

#include <memory>
#include <optional>

#include "framework/optim/optimizer.h"
#include "models/data/sources/function.h"
#include "models/nn/layers.h"
#include "models/train/trainer.h"
#include "ops/loss/loss.h"

namespace mpigrad::testing {

inline data::SourcePtr ramps(std::int64_t n = 12) {
  data::FunctionSamples samples{
      .size = n, .extents = {4, 3, 2}, .channels = 2, .target_names = {"slope", "number"}, .name = "ramp"};
  samples.values = [](std::int64_t sample, const Box& box, std::span<float> out) {
    std::size_t at = 0;
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          for (int c = 0; c < 2; ++c)
            out[at++] = static_cast<float>(0.001 * static_cast<double>(sample * 100 + d * 25 + h * 5 + w) + c);
    require(at == out.size(), "[test] {} of {} values", at, out.size());
  };
  samples.targets = [](std::int64_t sample) { return std::vector{0.1 * static_cast<double>(sample), 1.0}; };
  return std::make_shared<data::FunctionSource>(samples);
}

struct SmallNet : nn::Module {
  Tensor operator()(const Tensor& x) override { return linear(global_avg_pool(conv(x))); }
  nn::Conv3d conv{*this, "conv", {.out = 2, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 2}};
};

struct Training {
  explicit Training(const Communicator& comm, std::int64_t batch = 4) : world(comm) {
    loader.emplace(ramps(),
                   data::LoaderOptions{.grid = make_grid(comm, {.depth = comm.size()}), .batch = batch, .dtype = DType::float64});
    net.build(loader->layout(), {.seed = 3, .dtype = DType::float64});
    sgd.emplace(net, SGDAttributes{.learning_rate = 0.02});
    hooks.loss = mse;
    options.progress = {.quiet = true};
  }
  TrainerResult run() { return train(net, *sgd, *loader, world, hooks, options); }

  Communicator world;
  std::optional<data::Loader> loader;
  SmallNet net;
  std::optional<SGD> sgd;
  TrainerHooks hooks;
  TrainerOptions options;
};

}  // namespace mpigrad::testing
