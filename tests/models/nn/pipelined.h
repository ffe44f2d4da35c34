#pragma once
// Networks trained in pipelines, and on one rank with the same micro-batches.

#include <memory>

#include "models/nn/pipeline.h"
#include "ops/elementwise/elementwise.h"
#include "tests/models/networks/split_networks.h"

namespace mpigrad::testing {

inline constexpr int pipelined_steps = 2;

inline Tensor numbers(const Shape& shape, std::int64_t number, std::uint64_t which, const LayoutPtr& layout) {
  return constant(
      random_uniform(shape, Philox{.key = static_cast<std::uint64_t>(number), .stream = which}, -1, 1, DType::float64, layout));
}

inline std::unique_ptr<Optimizer> adam(nn::Module& net) {
  return std::make_unique<Adam>(net.parameters(), AdamAttributes{.learning_rate = 0.002, .epsilon = 1e-2, .weight_decay = 0.1});
}

inline Trained state_of(nn::Module& net, const Optimizer& optimizer) {
  Trained result;
  auto& parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) result[parameters[i].name] = whole_values(parameters[i].value);
  for (const auto& [name, value] : net.all_buffers()) result[name] = whole_values(value);
  for (const auto& [name, value] : optimizer.state()) result["state of " + name] = whole_values(value);
  return result;
}

// One rank, with the gradients of the micro-batches added up.
inline Trained trained_alone(const SplitNetwork& network, std::int64_t micro_batches) {
  const auto net = network.make();
  net->build(network.input, {.seed = 3, .dtype = DType::float64});
  const auto optimizer = adam(*net);
  for (int step = 0; step < pipelined_steps; ++step)
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      const auto number = step * micro_batches + m;
      net->set_step(number);
      Tape tape(*net);
      const auto loss = mse((*net)(numbers(network.input, number, 1, {})), numbers(network.target, number, 2, {}));
      const bool last = m + 1 == micro_batches;
      const auto gradients = tape.gradient(loss / static_cast<double>(micro_batches), {.accumulate = !last});
      if (last) optimizer->step(gradients, {.max_norm = 0.5});
    }
  return state_of(*net, *optimizer);
}

struct Pipelined {
  Pipelined(const Communicator& world, const SplitNetwork& network, const nn::PipelineOptions& options)
      : pipeline(nn::Pipeline::make(world, options)), net(network.make()), of_x(input_layout(pipeline->grid(), network.input)) {
    of_y = split_layout(pipeline->grid(), network.target,
                        network.target.rank() == 5 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0});
    net->build(of_x, {.seed = 3, .dtype = DType::float64, .pipeline = pipeline});
    optimizer = adam(*net);
  }
  nn::Pipeline::Step gradient(int step, std::int64_t micro_batches) {
    return pipeline->gradient(
        *net, micro_batches,
        [&](std::int64_t m) {
          const auto number = step * micro_batches + m;
          const auto y = (*net)(pipeline->input(numbers(of_x->global, number, 1, of_x)));
          return mse(y, pipeline->target(numbers(of_y->global, number, 2, of_y))) / static_cast<double>(micro_batches);
        },
        step * micro_batches);
  }
  void train(std::int64_t micro_batches) {
    for (int step = 0; step < pipelined_steps; ++step)
      optimizer->step(gradient(step, micro_batches).gradients, {.max_norm = 0.5});
  }

  std::shared_ptr<nn::Pipeline> pipeline;
  std::unique_ptr<nn::Module> net;
  std::unique_ptr<Optimizer> optimizer;
  LayoutPtr of_x, of_y;
};

}  // namespace mpigrad::testing
