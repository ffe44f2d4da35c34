// Captured work on a GPU: a repetition has the effect of another call, and other code does not use its memory.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>

#include "comm/transport/transport.h"
#include "framework/cuda/graph.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/train/step_graph.h"
#include "models/train/training.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_settings.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "tests/models/data/made_source.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

void append(Values& values, const Tensor& x) {
  const auto more = x.to_vector();
  values.insert(values.end(), more.begin(), more.end());
}

// Batch statistics with running means, pooling, dropout and weights: [N, D, H, W, C] -> [N, C]
class Net : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override {
    const auto w = parameter("scale", {x.dim(4)}, nn::constant_value(1.5));
    const auto scaled = (x.without_layout() * parameter_for(x, w)).with_layout(x.layout());
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = 1};
    const auto pooled = avg_pool(norm_(scaled), pool, Activation::leaky_relu(0.1));
    return global_avg_pool(dropout_(square(pooled)));
  }

 private:
  nn::BatchNorm norm_{*this, "norm", {.momentum = 0.5}};
  nn::Dropout dropout_{*this, "dropout", {.keep = 0.8}};
};

enum class Kind { sgd, adam, lars, lamb };
std::unique_ptr<Optimizer> make_optimizer(Kind kind, nn::Module& net) {
  switch (kind) {
    case Kind::sgd: return std::make_unique<SGD>(net, SGDAttributes{.learning_rate = 1e-2, .momentum = 0.9});
    case Kind::adam: return std::make_unique<AdamW>(net, AdamWAttributes{.learning_rate = 1e-2});
    case Kind::lars: return std::make_unique<LARS>(net, LarsAttributes{.learning_rate = 1e-1});
    default: return std::make_unique<LAMB>(net, LambAttributes{.learning_rate = 1e-2});
  }
}

struct Run {
  Kind optimizer = Kind::adam;
  DType dtype = DType::float64;
  double clip_norm = 0;
  std::int64_t samples = 24, batch = 4, epochs = 3;
  bool graph = true;
  GridExtents grid{};  // ranks use the available GPUs in turn
  LossFunction loss = mse;
};
// Results on rank 0.
struct Found {
  Values losses, state;
  int calls = 0;  // calls of the loss on the host
};

Found train(const Run& run, const std::function<std::unique_ptr<nn::Module>()>& make) {
  Found found;
  on_ranks(run.grid.sample * run.grid.depth * run.grid.height * run.grid.width, [&](const Communicator& world) {
    UseDevice device(DeviceKind::cuda);
    cuda::select(world.rank() % cuda::devices());
    const data::Loader loader(
        std::make_shared<MadeSource>(MadeSamples{.samples = run.samples}),
        {.grid = make_grid(world, run.grid), .batch = run.batch, .seed = 3, .shuffle = true, .dtype = run.dtype});
    const auto net = make();
    net->build(loader.shape(), {.seed = 5, .dtype = run.dtype});
    const auto optimizer = make_optimizer(run.optimizer, *net);
    Found mine;
    const LossFunction loss = [&](const Tensor& prediction, const Tensor& target) {
      ++mine.calls;
      return run.loss(prediction, target);
    };
    fit(*net, *optimizer, loader, loss, world,
        {.epochs = run.epochs,
         .learning_rate = schedule::Cosine{.rate = 1e-2, .steps = 100},
         .clip_norm = run.clip_norm,
         .graph = run.graph,
         .after_epoch = [&](const EpochReport& report) {
           mine.losses.push_back(report.loss);
           return std::string();
         }});
    mine.state.push_back(static_cast<double>(optimizer->steps()));
    for (const auto& value : net->parameters().tensors()) append(mine.state, value);
    for (const auto& [name, value] : net->buffers()) append(mine.state, value);
    for (const auto& each : optimizer->state()) append(mine.state, each.value);
    if (world.rank() == 0) found = std::move(mine);
  });
  return found;
}

// Most steps are repetitions of a graph; or none is, after one failed attempt.
void check_same_training(const Run& run, const std::function<std::unique_ptr<nn::Module>()>& make, double tolerance,
                         bool repeats = true, int attempts = 1) {
  auto ordinary = run;
  ordinary.graph = false;
  const auto wanted = train(ordinary, make), found = train(run, make);
  CHECK(relative_error(found.losses, wanted.losses) <= tolerance);
  CHECK(relative_error(found.state, wanted.state) <= tolerance);
  if (repeats) CHECK(found.calls < wanted.calls);
  else CHECK(found.calls == wanted.calls + attempts);
}

const auto small_net = [] { return std::make_unique<Net>(); };

// Ordinary steps and the same steps by a graph.
struct Steps {
  UseDevice device{DeviceKind::cuda};
  Net net;
  std::unique_ptr<Adam> adam;
  std::unique_ptr<StepGraph> graph;
  StepGraph::Step step;
  std::int64_t next = 0;
  explicit Steps(const Communicator& world, int warm_up = 1) {
    net.build(Shape{2, 4, 4, 4, 3}, {.seed = 1, .dtype = DType::float64});
    adam = std::make_unique<Adam>(net, AdamAttributes{.learning_rate = 1e-2});
    graph = std::make_unique<StepGraph>(net, *adam, world, StepGraphOptions{.warm_up = warm_up, .quiet = true});
    step = [this](const std::vector<Tensor>& in) {
      Tape tape(net);
      const auto loss = mse(net(in[0]), in[1]);
      adam->step(tape.gradient(loss));
      return loss;
    };
  }
  std::vector<Tensor> inputs(std::int64_t n = 2) const {
    const Philox random{static_cast<std::uint64_t>(next), 1};
    return {constant(random_uniform({n, 4, 4, 4, 3}, random, -1, 1, DType::float64)),
            constant(random_uniform({n, 3}, random.child(1), -1, 1, DType::float64))};
  }
  Tensor run(std::int64_t n = 2) {
    net.set_step(next);
    adam->set_learning_rate(1e-2 / static_cast<double>(++next));
    return (*graph)(inputs(n), step);
  }
};

}  // namespace

TEST_CASE("gpu: a graph repeats what it captured, with what is in memory then") {
  if (no_gpu("gpu: a graph repeats what it captured, with what is in memory then")) return;
  UseDevice device(DeviceKind::cuda);
  Tensor x = zeros({1000}, DType::float64), y = zeros({1000}, DType::float64);
  const auto work = [&] {
    const auto table = from_vector({1000}, Values(1000, 0.5), DType::float64);  // from the host
    const auto inner = exp(x) * table + sum(x);
    detail::copy_bytes(DeviceKind::cuda, y.raw(), inner.raw(), inner.bytes());
  };
  work();
  cuda::CapturedGraph graph(work);
  for (const double value : {0.0, 1.0, -2.0}) {
    const auto from = full({1000}, value, DType::float64);
    detail::copy_bytes(DeviceKind::cuda, x.raw(), from.raw(), from.bytes());
    // Other code allocates memory, and writes to it.
    std::vector<Tensor> others;
    for (const std::int64_t n : {1000, 1, 5000, 1000, 1000, 20000, 1000}) others.push_back(full({n}, NAN, DType::float64));
    graph.launch({});
    for (const auto& other : others) CHECK(std::isnan(other.to_vector()[0]));
    CHECK(relative_error(y.to_vector(), Values(1000, 0.5 * std::exp(value) + 1000 * value)) < 1e-12);
  }
}

TEST_CASE("gpu: what cannot be captured says so, and nothing has happened") {
  if (no_gpu("gpu: what cannot be captured says so, and nothing has happened")) return;
  UseDevice device(DeviceKind::cuda);
  const auto x = ones({100}, DType::float64);
  const auto refused = [&](const std::function<void()>& f) -> std::string {
    try {
      const cuda::CapturedGraph graph(f);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(refused([&] { sum(x).item(); }).find("waits for the GPU, so this step cannot be captured") != std::string::npos);
  CHECK(refused([&] { cuda::synchronise(cuda::compute_stream()); }).find("waits for the GPU") != std::string::npos);
  CHECK(refused([&] { random_uniform({3}, {1, 2}); }).find("would be the same in every repetition") != std::string::npos);
  CHECK(refused([&] { dropout(x, 0.5, {1, 2}); }).find("would be the same in every repetition") != std::string::npos);
  CHECK(refused([&] { const cuda::CapturedGraph within([] {}); }).find("a step is captured within a step") != std::string::npos);
  // A stream that is drawn into the capture and never joined; later calls must not see CUDA's error.
  const auto stray = [&] {
    const auto y = square(x);
    cuda::wait(cuda::copy_stream(), cuda::compute_stream());
    cuda::copy(y.raw(), x.raw(), x.bytes(), cuda::copy_stream());
  };
  CHECK(refused(stray).find("cudaStreamEndCapture") != std::string::npos);
  CHECK(sum(x).item() == 100);
  CHECK(refused([&] { fail("an error of its own"); }) == "an error of its own");
  CHECK(refused([&] { square(x); }) == "nothing");
  CHECK(!cuda::capturing());
  CHECK(sum(x).item() == 100);
  CHECK(cuda::memory().pools == 0);
}

TEST_CASE("gpu: the masks of a captured dropout are those of its step") {
  if (no_gpu("gpu: the masks of a captured dropout are those of its step")) return;
  const Philox random{7, 9};
  const auto masks_on = [&](DeviceKind on, std::uint64_t step) {
    const UseDevice device(on);
    return dropout(ones({3, 700}, DType::float64), 0.7, random, step).to_vector();
  };
  UseDevice device(DeviceKind::cuda);
  const Tensor x = ones({3, 700}, DType::float64), y = zeros({3, 700}, DType::float64);
  cuda::CapturedGraph graph([&] {
    const auto mask = dropout(x, 0.7, random, 1000);
    detail::copy_bytes(DeviceKind::cuda, y.raw(), mask.raw(), mask.bytes());
  });
  for (const std::uint64_t step : {0, 1, 1000, 1 << 30}) {
    graph.launch({.step = step});
    const auto expected = masks_on(DeviceKind::cpu, step);
    CHECK(y.to_vector() == expected);
    CHECK(masks_on(DeviceKind::cuda, step) == expected);
    const UseDevice cpu(DeviceKind::cpu);
    CHECK(dropout(ones({3, 700}, DType::float64), 0.7, random.child(step)).to_vector() == expected);
  }
}

TEST_CASE("gpu: training with a captured step is that without") {
  if (no_gpu("gpu: training with a captured step is that without")) return;
  for (const auto kind : {Kind::sgd, Kind::adam, Kind::lars, Kind::lamb})
    for (const auto dtype : {DType::float32, DType::float64}) {
      INFO("optimizer ", static_cast<int>(kind), ", ", name_of(dtype));
      check_same_training({.optimizer = kind, .dtype = dtype}, small_net, 0);
    }
  INFO("limited norm");
  check_same_training({.clip_norm = 1e-2}, small_net, 0);
  INFO("a smaller last batch");
  check_same_training({.samples = 30}, small_net, 0);
  INFO("few steps");
  check_same_training({.samples = 8}, small_net, 0);
}

TEST_CASE("gpu: training falls back to ordinary steps where the loss waits for the GPU, and between threads") {
  if (no_gpu("gpu: training falls back to ordinary steps where the loss waits for the GPU, and between threads")) return;
  Run run;
  run.loss = [](const Tensor& prediction, const Tensor& target) {
    const auto loss = mse(prediction, target);
    return loss.item() > 1e9 ? loss * 0.5 : loss;
  };
  check_same_training(run, small_net, 0, false);
  // Ranks as threads capture nothing; processes with a GPU each do (tests/comm/transport/nccl_test.cpp).
  for (const auto& grid : {GridExtents{.sample = 2}, GridExtents{.depth = 2}}) {
    INFO("depth ", grid.depth);
    check_same_training({.clip_norm = 1e-2, .samples = 30, .grid = grid}, small_net, 1e-12, false, 0);
  }
}

TEST_CASE("gpu: CosmoFlow with a captured step is that without") {
  if (no_cudnn("gpu: CosmoFlow with a captured step is that without")) return;
  if (no_cublas("gpu: CosmoFlow with a captured step is that without")) return;
  // Compares steps with a second computation: skips kernels that sum in a different order each time.
  const auto before = gpu_settings();
  auto deterministic = before;
  deterministic.deterministic = true;
  set_gpu_settings(deterministic);
  for (const bool batch_norm : {false, true}) {
    const CosmoFlowOptions options{.batch_norm = batch_norm, .filters = 1};
    INFO("batch norm ", batch_norm);
    Values wanted;
    for (const bool graph : {false, true})
      on_ranks(1, [&](const Communicator& world) {
        UseDevice device(DeviceKind::cuda);
        CosmoFlow net(options);
        net.build(Shape{1, 16, 16, 16, 4}, {.seed = 1});
        Adam adam(net, {.learning_rate = 1e-3});
        StepGraph steps(net, adam, world, {.warm_up = 2, .quiet = true});
        Values values;
        for (std::int64_t step = 0; step < 5; ++step) {
          const Philox random{static_cast<std::uint64_t>(step), 1};
          const std::vector<Tensor> batch{constant(random_normal({1, 16, 16, 16, 4}, random)),
                                          constant(random_normal({1, 4}, random.child(1)))};
          const StepGraph::Step one_step = [&](const std::vector<Tensor>& in) {
            Tape tape(net);
            const auto loss = mse(net(in[0]), in[1]);
            adam.step(tape.gradient(loss));
            return loss;
          };
          net.set_step(step);
          append(values, graph ? steps(batch, one_step) : one_step(batch));
        }
        if (graph) require(steps.repeated() == 3, "[test] {} steps were repeated: {}", steps.repeated(), steps.reason());
        for (const auto& value : net.parameters().tensors()) append(values, value);
        for (const auto& [buffer, value] : net.buffers()) append(values, value);
        if (!graph) wanted = values;
        else require(relative_error(values, wanted) < 1e-6, "[test] steps differ by {}", relative_error(values, wanted));
      });
  }
  set_gpu_settings(before);
}

TEST_CASE("gpu: a captured step is left for other shapes, given back, and captured again") {
  if (no_gpu("gpu: a captured step is left for other shapes, given back, and captured again")) return;
  Values wanted, found;
  for (const bool by_graph : {false, true})
    on_ranks(1, [&](const Communicator& world) {
      Steps steps(world, by_graph ? 1 : 1000);
      auto& values = by_graph ? found : wanted;
      std::vector<Tensor> losses;
      for (const std::int64_t n : {2, 2, 2, 1, 2, 2, 3, 2, 2}) {
        losses.push_back(steps.run(n));  // each result has its own memory, also after the next step
        if (losses.size() == 6) steps.graph->release();
      }
      if (by_graph) {
        require(steps.graph->reason().empty(), "[test] {}", steps.graph->reason());
        require(steps.graph->captured() && steps.graph->repeated() == 5, "[test] {} repetitions", steps.graph->repeated());
        require(cuda::memory().pools > 0, "[test] a captured step has no memory of its own");
        steps.graph->release();
        require(cuda::memory().pools == 0, "[test] memory of a captured step was not given back");
      }
      for (const auto& loss : losses) append(values, loss);
      for (const auto& value : steps.net.parameters().tensors()) append(values, value);
      for (const auto& [name, value] : steps.net.buffers()) append(values, value);
      values.push_back(static_cast<double>(steps.adam->steps()));
    });
  CHECK(found == wanted);
}

TEST_CASE("gpu: capturing a step takes no memory but what ordinary steps took, and the host waits for nothing") {
  if (no_gpu("gpu: capturing a step takes no memory but what ordinary steps took, and the host waits for nothing")) return;
  on_ranks(1, [&](const Communicator& world) {
    Steps steps(world, 3);
    for (int i = 0; i < 3; ++i) steps.run();
    const auto reserved = cuda::memory().reserved;
    const auto waits = cuda::statistics().host_synchronisations;
    for (int i = 0; i < 5; ++i) steps.run();
    require(steps.graph->repeated() == 5, "[test] {} repetitions: {}", steps.graph->repeated(), steps.graph->reason());
    require(cuda::statistics().host_synchronisations == waits, "[test] the host waited");
    // Inputs and results have memory of their own: one segment of small tensors.
    require(cuda::memory().reserved <= reserved + (4 << 20), "[test] {} instead of {}", cuda::memory().reserved, reserved);
  });
}

TEST_CASE("gpu: why steps are not captured is known before the first") {
  if (no_gpu("gpu: why steps are not captured is known before the first")) return;
  on_ranks(2, [&](const Communicator& world) {
    if (cuda::devices() > 1) return;  // NCCL may serve them then
    Steps steps(world);
    require(steps.graph->reason().find("ranks meet on the host in between") != std::string::npos, "[test] {}",
            steps.graph->reason());
    world.transport().barrier();
  });
  on_ranks(1, [&](const Communicator& world) {
    Steps steps(world);
    steps.graph =
        std::make_unique<StepGraph>(steps.net, *steps.adam, world, StepGraphOptions{.reason = "because", .quiet = true});
    require(steps.graph->reason() == "because", "[test] {}", steps.graph->reason());
    for (int i = 0; i < 4; ++i) steps.run();
    require(steps.graph->repeated() == 0 && steps.adam->steps() == 4, "[test] steps were repeated");
    const UseDevice cpu(DeviceKind::cpu);
    const StepGraph none(steps.net, *steps.adam, world, {.quiet = true});
    require(none.reason().find("tensors are not on a GPU") != std::string::npos, "[test] {}", none.reason());
  });
}
