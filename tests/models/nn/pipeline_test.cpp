// Networks in pipelines: trained, they equal one rank that runs the same micro-batches.

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "models/train/checkpoint/checkpoint.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/views/views.h"
#include "tests/models/nn/pipelined.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// A layer of one's own with parameters, whose shortcut is added after the next layer.
struct Scaled : nn::Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) override {
    return x * parameter("scale", {1, 1, 1, 1, global_shape(x)[4]}, nn::constant_value(1.5));
  }
};
struct Own : nn::Module {
  nn::Conv3d first{*this, "first", {.out = 3, .kernel = 3, .padding = 1}};
  Scaled scaled{*this, "scaled"};
  nn::BatchNorm norm{*this, "norm", {}};
  nn::Conv3d second{*this, "second", {.out = 3, .kernel = 3, .padding = 1}};
  nn::Linear head{*this, "head", {.out = 2}};
  Tensor operator()(const Tensor& x) override {
    const auto a = first(x);
    const auto b = scaled(a);
    const auto c = second(norm(b)) + a;  // a and b are read by several stages
    return head(flatten(mpigrad::avg_pool(concatenate({c, b}, 4), {.kernel = 2, .stride = 2})));
  }
};

std::vector<SplitNetwork> networks() {
  auto all = split_networks();
  all.push_back({"own layers", [] { return std::make_unique<Own>(); }, {2, 6, 4, 4, 2}, {2, 2}});
  all.push_back({"U-Net that recomputes",
                 [] {
                   return std::make_unique<UNet3d>(
                       UNet3dOptions{.variant = UNet3dVariant::lbann, .filters = {4, 5, 6, 7}, .classes = 3, .recompute = true});
                 },
                 {2, 12, 8, 6, 1},
                 {2, 12, 8, 6, 3}});
  return all;
}

const SplitNetwork& network_named(std::string_view name) {
  static const auto all = networks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& network) { return network.name == name; });
  REQUIRE(found != all.end());
  return *found;
}

}  // namespace

TEST_CASE("pipeline: a stage's tasks are those of the schedules") {
  using enum nn::PipelineSchedule;
  const auto text = [](nn::PipelineSchedule schedule, int stages, int stage, std::int64_t micro_batches) {
    std::string result;
    for (const auto& task : nn::pipeline_tasks(schedule, stages, stage, micro_batches))
      result += fmt::format("{}{} ", task.forward ? 'F' : 'B', task.micro_batch);
    return result;
  };
  CHECK(text(fill_drain, 3, 1, 3) == "F0 F1 F2 B2 B1 B0 ");
  CHECK(text(one_forward_one_backward, 3, 0, 4) == "F0 F1 F2 B0 F3 B1 B2 B3 ");
  CHECK(text(one_forward_one_backward, 3, 1, 4) == "F0 F1 B0 F2 B1 F3 B2 B3 ");
  CHECK(text(one_forward_one_backward, 3, 2, 4) == "F0 B0 F1 B1 F2 B2 F3 B3 ");
  CHECK(text(one_forward_one_backward, 4, 0, 2) == "F0 F1 B0 B1 ");
}

TEST_CASE("pipeline: networks trained in stages equal those of one rank") {
  using enum nn::PipelineSchedule;
  struct Case {
    std::string network;
    std::int64_t micro_batches;
    GridExtents grid;
    nn::PipelineSchedule schedule = one_forward_one_backward;
  };
  for (const auto& c :
       std::vector<Case>{{"CosmoFlow", 3, {.stage = 2}},
                         {"CosmoFlow", 2, {.depth = 2, .stage = 3}, fill_drain},
                         {"CosmoFlow with batch norm", 2, {.sample = 2, .stage = 2}},
                         {"CosmoFlow with batch norm", 2, {.sample = 3, .stage = 2}},  // a rank of each stage has no sample
                         {"AlexNet", 5, {.stage = 4}},
                         {"ResNet", 4, {.stage = 3}},
                         {"ResNet", 2, {.sample = 3, .stage = 3}},
                         {"ResNet-50 that begins as its shortcuts", 2, {.stage = 6}},
                         {"U-Net of maxima and batch norm", 2, {.depth = 2, .stage = 2}},
                         {"U-Net of maxima and batch norm", 4, {.stage = 3}},
                         {"U-Net of strides and instance norm", 8, {.stage = 4}},
                         {"U-Net of strides and instance norm", 1, {.sample = 2, .height = 2, .stage = 2}, fill_drain},
                         {"U-Net that recomputes", 2, {.stage = 3}},
                         {"own layers", 3, {.stage = 2}},
                         {"own layers", 2, {.depth = 2, .stage = 5}},
                         {"own layers", 2, {.stage = 1}}}) {
    CAPTURE(c.network);
    CAPTURE(c.grid.stage);
    const auto& network = network_named(c.network);
    const auto expected = trained_alone(network, c.micro_batches);
    check_on_ranks(ranks_of(c.grid), c.network, [&](const Communicator& world) {
      Pipelined pipelined(world, network, {.grid = c.grid, .schedule = c.schedule});
      pipelined.train(c.micro_batches);
      require_trained(fmt::format("{} on {} stages", c.network, c.grid.stage), state_of(*pipelined.net, *pipelined.optimizer),
                      expected);
    });
  }
}

TEST_CASE("pipeline: a step has the tapes and the order of its schedule, and sends activations and cotangents only") {
  const auto& network = network_named("U-Net of maxima and batch norm");
  constexpr std::int64_t micro_batches = 5;
  for (const auto schedule : {nn::PipelineSchedule::fill_drain, nn::PipelineSchedule::one_forward_one_backward})
    check_on_ranks(2, "U-Net", [&](const Communicator& world) {
      Pipelined pipelined(world, network, {.boundaries = {"bottom"}, .schedule = schedule});
      const auto step = pipelined.gradient(0, micro_batches);
      const int stage = pipelined.pipeline->stage();
      const bool drains = schedule == nn::PipelineSchedule::fill_drain;
      CHECK(step.most_tapes == static_cast<std::size_t>(drains ? micro_batches : 2 - stage));
      const auto expected = nn::pipeline_tasks(schedule, 2, stage, micro_batches);
      REQUIRE(step.tasks.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(step.tasks[i].micro_batch == expected[i].micro_batch);
        CHECK(step.tasks[i].forward == expected[i].forward);
        CHECK(step.tasks[i].begin <= step.tasks[i].end);
        if (i > 0) CHECK(step.tasks[i - 1].end <= step.tasks[i].begin);
      }
      // The skips of both levels and the pooled result of the second, in float64.
      const std::int64_t bytes = 8 * (2 * 12 * 8 * 6 * 5 + 2 * 6 * 4 * 3 * 6 + 2 * 3 * 2 * 1 * 6);
      CHECK(pipelined.pipeline->messages().sent().messages == 3 * micro_batches);
      CHECK(pipelined.pipeline->messages().sent().bytes == bytes * micro_batches);
    });
}

namespace {

// Layers in a random order, each of which adds results of random earlier ones to its input.
struct Random : nn::Module {
  explicit Random(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const auto layers = 4 + below(5);
    for (std::size_t i = 0; i < layers; ++i) {
      const auto name = fmt::format("layer{}", i);
      switch (below(5)) {
        case 0: parts.push_back(std::make_unique<Scaled>(*this, name)); break;
        case 1: parts.push_back(std::make_unique<nn::GroupNorm>(*this, name, nn::GroupNormAttributes{.groups = 1})); break;
        case 2: parts.push_back(std::make_unique<nn::BatchNorm>(*this, name, nn::BatchNormAttributes{})); break;
        default:
          parts.push_back(std::make_unique<nn::Conv3d>(
              *this, name, nn::Conv3dAttributes{.out = 2, .kernel = 3, .padding = 1, .activation = Activation::relu}));
      }
      skips.emplace_back();
      for (std::size_t from = 0; from < i; ++from)
        if (below(3) == 0) skips.back().push_back(from);
    }
  }
  Tensor operator()(const Tensor& x) override {
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto y = i == 0 ? x : results.back();
      for (const auto from : skips[i]) y = y + results[from] * 0.5;
      results.push_back((*parts[i])(y));
    }
    return results.back();
  }
  std::vector<std::unique_ptr<nn::Module>> parts;
  std::vector<std::vector<std::size_t>> skips;
};

}  // namespace

TEST_CASE("pipeline: random networks, cut at random layers, equal one rank") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed + 1000);
    const SplitNetwork network{"random", [=] { return std::make_unique<Random>(seed); }, {2, 4, 3, 3, 2}, {2, 4, 3, 3, 2}};
    const auto layers = Random(seed).parts.size();
    const auto stages = 2 + random() % 3;
    std::vector<std::size_t> cuts(layers - 1);
    std::iota(cuts.begin(), cuts.end(), 1);
    std::shuffle(cuts.begin(), cuts.end(), random);
    cuts.resize(stages - 1);
    std::sort(cuts.begin(), cuts.end());
    nn::PipelineOptions options{
        .grid = {.depth = static_cast<int>(1 + random() % 2), .stage = static_cast<int>(stages)},
        .schedule = random() % 2 ? nn::PipelineSchedule::fill_drain : nn::PipelineSchedule::one_forward_one_backward};
    for (const auto cut : cuts) options.boundaries.push_back(fmt::format("layer{}", cut));
    const auto micro_batches = static_cast<std::int64_t>(1 + random() % 4);
    const auto expected = trained_alone(network, micro_batches);
    check_on_ranks(ranks_of(options.grid), fmt::format("network {}", seed), [&](const Communicator& world) {
      Pipelined pipelined(world, network, options);
      pipelined.train(micro_batches);
      require_trained(fmt::format("network {}", seed), state_of(*pipelined.net, *pipelined.optimizer), expected);
    });
  }
}

TEST_CASE("pipeline: checkpoints move between pipelines and other grids") {
  const auto& network = network_named("CosmoFlow with batch norm");
  const auto expected = trained_alone(network, 2);
  if (without_hdf5("pipeline: checkpoints")) return;
  const Folder folder;
  const auto path = folder / "checkpoint.h5";
  check_on_ranks(4, "save", [&](const Communicator& world) {
    Pipelined pipelined(world, network, {.grid = {.depth = 2, .stage = 2}});
    pipelined.train(2);
    save_checkpoint(path, *pipelined.net, world, {.optimizer = pipelined.optimizer.get()});
  });
  const auto net = network.make();
  net->build(network.input, {.seed = 9, .dtype = DType::float64});
  const auto optimizer = adam(*net);
  load_checkpoint(path, *net, {.optimizer = optimizer.get()});
  require_trained("on one rank", state_of(*net, *optimizer), expected);
  check_on_ranks(3, "load", [&](const Communicator& world) {
    Pipelined other(world, network, {.grid = {.stage = 3}});
    load_checkpoint(path, *other.net, {.optimizer = other.optimizer.get()});
    require_trained("on three stages", state_of(*other.net, *other.optimizer), expected);
    const auto again = other.gradient(pipelined_steps, 2);
    CHECK(again.gradients.size() == other.net->parameters().size());
  });
}

TEST_CASE("pipeline: what cannot be divided is refused by name") {
  const auto refused = [](int ranks, const std::string& network, const nn::PipelineOptions& options) {
    return error_text(
        [&] { on_ranks(ranks, [&](const Communicator& world) { Pipelined(world, network_named(network), options).train(1); }); });
  };
  CHECK(has(refused(3, "CosmoFlow", {.grid = {.stage = 2}}), "2 stages of 1 rank on 3 ranks"));
  CHECK(has(refused(2, "CosmoFlow", {.boundaries = {"conv3", "conv4"}}), "2 stages have 1 boundaries, got 2"));
  CHECK(has(refused(2, "CosmoFlow", {.boundaries = {"conv99"}}), "no layer called conv99"));
  CHECK(has(refused(2, "U-Net that recomputes", {.boundaries = {"down1.conv2"}}), "recomputed"));
  struct Twice : nn::Module {
    nn::Conv3d first{*this, "first", {.out = 2, .kernel = 1}}, second{*this, "second", {.out = 2, .kernel = 1}};
    Tensor operator()(const Tensor& x) override { return first(second(first(x))); }
  };
  const SplitNetwork twice{"twice", [] { return std::make_unique<Twice>(); }, {2, 3, 3, 3, 2}, {2, 3, 3, 3, 2}};
  CHECK(has(
      error_text([&] { on_ranks(2, [&](const Communicator& world) { Pipelined(world, twice, {.boundaries = {"second"}}); }); }),
      "layer first is of stage 0 and gets a tensor of stage 1"));
}

namespace {

// One step of a network of two stages; `loss` gets the network's result and the target.
std::string error_of_step(const NetworkMaker& make, const std::function<Tensor(Pipelined&, const Tensor&, const Tensor&)>& loss,
                          int times = 1) {
  const SplitNetwork network{"small", make, {2, 4, 4, 4, 2}, {2, 4, 4, 4, 2}};
  return error_text([&] {
    on_ranks(2, [&](const Communicator& world) {
      Pipelined pipelined(world, network, {.boundaries = {"second"}});
      std::string first;
      for (int time = 0; time < times; ++time) {
        const auto step = [&] {
          (void)pipelined.pipeline->gradient(*pipelined.net, 2, [&](std::int64_t m) {
            require(times == 1 || m == 0 || time > 0, "[test] the first step fails");
            const auto x = numbers(network.input, m, 1, pipelined.of_x), y = numbers(network.target, m, 2, pipelined.of_y);
            return loss(pipelined, (*pipelined.net)(pipelined.pipeline->input(x)), y);
          });
        };
        if (time + 1 < times) first = error_text(step);
        else step();
      }
    });
  });
}

struct TwoLayers : nn::Module {
  explicit TwoLayers(int kind = 0) : kind(kind) {}
  nn::Conv3d first{*this, "first", {.out = 2, .kernel = 1}}, second{*this, "second", {.out = 2, .kernel = 3, .padding = 1}},
      third{*this, "third", {.out = 2, .kernel = 1}};
  int kind;
  Tensor operator()(const Tensor& x) override {
    const auto a = first(x), b = second(a);
    if (kind == 1) return b + recompute([this](const Tensor& z) { return third(z); }, a);
    if (kind == 2) return recompute([this, a](const Tensor& z) { return relu(third(z + a)); }, b);
    return third(b);
  }
};

}  // namespace

TEST_CASE("pipeline: what would give wrong numbers is an error") {
  const auto made = [](int kind) { return [=] { return std::make_unique<TwoLayers>(kind); }; };
  const auto compared = [](Pipelined& p, const Tensor& result, const Tensor& y) { return mse(result, p.pipeline->target(y)); };
  CHECK(error_of_step(made(0), compared).empty());
  CHECK(has(error_of_step(made(1), compared), "[recompute] a function that is recomputed uses a tensor of stage 0 in stage 1"));
  CHECK(has(error_of_step(made(2), compared), "[recompute] a function that is recomputed uses a tensor of stage 0 in stage 1"));
  CHECK(has(error_of_step(made(0), [](Pipelined&, const Tensor& result, const Tensor& y) { return mse(result, y); }),
            "is used without input() or target()"));
  CHECK(has(error_of_step(made(0), compared, 2), "[pipeline] an earlier step ended with an error"));
  // A constant with the layout of the result, which every rank makes.
  CHECK(error_of_step(made(0), [](Pipelined& p, const Tensor& result, const Tensor& y) {
          const auto noise = constant(random_normal(result.layout()->global, {.key = 9}, 0, 1, DType::float64, result.layout()));
          return mse(result * noise, p.pipeline->target(y));
        }).empty());
  const auto refused = [&](const GridExtents& grid, const std::vector<std::string>& boundaries) {
    return error_text([&] {
      on_ranks(ranks_of(grid), [&](const Communicator& world) {
        const SplitNetwork network{"small", made(0), {2, 4, 4, 4, 2}, {2, 4, 4, 4, 2}};
        const Pipelined once(world, network, {.grid = grid, .boundaries = boundaries});
        auto again = network.make();
        again->build(once.of_x, {.dtype = DType::float64, .pipeline = once.pipeline});
      });
    });
  };
  CHECK(has(refused({.channel = 2, .stage = 2}, {"second"}), "stages are not combined with the axis channel"));
  CHECK(has(refused({.stage = 2}, {"first"}), "the boundary first is the first layer"));
  CHECK(has(refused({.stage = 2}, {"second"}), "a network has been built on this pipeline already"));
}
