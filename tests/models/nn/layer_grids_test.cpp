// Networks whose layers have grids of their own, and networks with weights stored in parts: trained, they equal those of one
// rank.

#include <doctest/doctest.h>

#include "comm/distributed/same_parameters.h"
#include "comm/transport/forwarding.h"
#include "framework/optim/optimizer.h"
#include "models/nn/describe.h"
#include "models/nn/whole_copy.h"
#include "models/train/checkpoint/checkpoint.h"
#include "tests/models/networks/split_networks.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// With the usual epsilon, gradients close to zero would show their rounding.
std::unique_ptr<Optimizer> adam(Parameters& parameters) {
  return std::make_unique<Adam>(parameters, AdamAttributes{.learning_rate = 0.002, .epsilon = 1e-2, .weight_decay = 0.1});
}
std::unique_ptr<Optimizer> lamb(Parameters& parameters) {
  return std::make_unique<LAMB>(parameters, LambAttributes{.learning_rate = 0.002, .epsilon = 1e-2});
}

const nn::LayerSplit filters = ChannelSplit::filters, channels{ChannelSplit::channels, "channel", true};

// The grid of a network and those of its layers.
struct Arrangement {
  std::string network;
  GridExtents grid;
  std::vector<LayerExtents> layers{};
  nn::LayerSplit split = filters;
  bool sharded = false;
};

std::string text_of(const Arrangement& a) {
  const auto text = [](const GridExtents& e) {
    return fmt::format("{}x{}x{}x{}x{}x{}", e.sample, e.depth, e.height, e.width, e.channel, e.filter);
  };
  auto result = fmt::format("{} on {}{}", a.network, text(a.grid), a.sharded ? ", sharded" : "");
  for (const auto& own : a.layers) result += fmt::format(", {} on {}", own.layers, text(own.grid));
  return result;
}

const SplitNetwork& network_named(std::string_view name) {
  static const auto all = split_networks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& network) { return network.name == name; });
  REQUIRE(found != all.end());
  return *found;
}

SplitTraining training_of(const Arrangement& a, const Communicator& comm, const SplitNetwork& network) {
  nn::BuildOptions options{.split = a.split, .sharded_weights = a.sharded};
  for (const auto& own : a.layers) options.grids.push_back({own.layers, make_grid(comm, own.grid), own.split});
  return {network, make_grid(comm, a.grid), options};
}

Trained trained_on_one(const SplitNetwork& network, const OptimizerMaker& make, int steps, double max_norm) {
  SplitTraining one(network, nullptr);
  const auto optimizer = make(*one.net);
  one.train(*optimizer, 0, steps, max_norm);
  return everything_of(*one.net, optimizer.get());
}

void compare(const std::vector<Arrangement>& arrangements, const OptimizerMaker& make, int steps) {
  std::map<std::string, Trained> expected;
  for (const auto& a : arrangements) {
    const auto& network = network_named(a.network);
    auto& one = expected[a.network];
    if (one.empty()) one = trained_on_one(network, make, steps, 0.5);
    check_on_ranks(ranks_of(a.grid), text_of(a), [&](const Communicator& comm) {
      auto mine = training_of(a, comm, network);
      const auto optimizer = make(*mine.net);
      mine.train(*optimizer, 0, steps, 0.5);
      require_trained(text_of(a), everything_of(*mine.net, optimizer.get()), one);
    });
  }
}

}  // namespace

TEST_CASE("layer grids: space where volumes are large, then samples, filters or channels") {
  const std::string cosmoflow = "CosmoFlow", normed = "CosmoFlow with batch norm", alexnet = "AlexNet, each layer its own way",
                    lbann = "U-Net of maxima and batch norm", mlperf = "U-Net of strides and instance norm",
                    resnet = "ResNet-50 that begins as its shortcuts";
  compare({{cosmoflow, {.depth = 2}, {{"conv5-7", {.sample = 2}}}},
           {cosmoflow, {.depth = 3}, {{"conv4-7", {.channel = 3}}, {"linear1-3", {.channel = 3}, channels}}},
           {cosmoflow, {.depth = 2, .height = 2}, {{"conv3-4", {.depth = 2, .channel = 2}}, {"conv5-7", {.channel = 4}}}},
           {normed, {.depth = 2, .height = 2}, {{"conv5-7", {.sample = 2, .channel = 2}}, {"linear1", {.channel = 4}}}},
           {normed, {.depth = 3, .height = 2}, {{"conv3-7", {.sample = 2, .channel = 3}, channels}}},
           {cosmoflow,
            {.depth = 4, .height = 2},
            {{"conv5-6", {.channel = 8}}, {"conv7", {.sample = 8}}, {"linear1", {.channel = 8}}}},
           {cosmoflow,
            {.depth = 3, .height = 2, .width = 2},
            {{"conv4-7", {.depth = 2, .channel = 6}}, {"linear1-2", {.channel = 12}}}},
           {alexnet, {.depth = 2}, {{"linear1-3", {.sample = 2}}}},
           {alexnet, {.depth = 3}, {{"conv2-4", {.channel = 3}}, {"linear1-2", {.channel = 3}}}},
           {alexnet, {.sample = 2, .depth = 2}, {{"conv3-4", {.channel = 4}}, {"linear1", {.sample = 2, .channel = 2}}}},
           {alexnet, {.depth = 4, .height = 2}, {{"linear1-2", {.channel = 8}}}},
           {lbann, {.depth = 2}, {{"bottom", {.sample = 2}}}},
           {lbann,
            {.depth = 2, .height = 2},
            {{"down2", {.depth = 2, .channel = 2}}, {"bottom", {.channel = 4}}, {"up2", {.sample = 4}}}},
           {mlperf, {.depth = 3}, {{"down3", {.channel = 3}}, {"bottom", {.channel = 3}, channels}}},
           {mlperf, {.depth = 3, .height = 2}, {{"bottom", {.sample = 2, .channel = 3}}, {"head", {.sample = 6}}}},
           {resnet, {.height = 2}, {{"stage4", {.sample = 2}}}},
           {resnet, {.height = 2, .width = 2}, {{"stage3-4", {.sample = 2, .channel = 2}}, {"stage2", {.channel = 4}}}},
           {resnet, {.sample = 2, .height = 3}, {{"stage4", {.sample = 2, .channel = 3}, channels}}}},
          adam, 20);
}

TEST_CASE("layer grids: all layers split alike, beside samples and space, on up to twelve ranks") {
  const std::string cosmoflow = "CosmoFlow", normed = "CosmoFlow with batch norm", alexnet = "AlexNet",
                    lbann = "U-Net of maxima and batch norm", mlperf = "U-Net of strides and instance norm",
                    resnet = "ResNet-50 that begins as its shortcuts";
  compare({{cosmoflow, {.channel = 8}},  // some ranks have no channels of the first layers
           {cosmoflow, {.channel = 4}, {}, channels},
           {normed, {.sample = 2, .depth = 2, .channel = 3}},
           {normed, {.depth = 2, .channel = 3}, {}, channels},
           {alexnet, {.channel = 12}},
           {alexnet, {.sample = 2, .depth = 2, .channel = 2}, {}, channels},
           {mlperf, {.depth = 2, .channel = 4}},
           {mlperf, {.channel = 3}, {}, channels},
           {lbann, {.sample = 2, .channel = 2}, {}, channels},
           {lbann, {.depth = 2, .height = 2, .channel = 3}},
           {resnet, {.height = 2, .channel = 4}},
           {resnet, {.sample = 2, .channel = 2}, {}, channels}},
          adam, 20);
}

TEST_CASE("layer grids: layers that are split along filters and channels at once") {
  const std::string cosmoflow = "CosmoFlow", normed = "CosmoFlow with batch norm", alexnet = "AlexNet, each layer its own way",
                    lbann = "U-Net of maxima and batch norm", mlperf = "U-Net of strides and instance norm",
                    resnet = "ResNet-50 that begins as its shortcuts";
  compare({{cosmoflow, {.channel = 2, .filter = 2}},
           {cosmoflow, {.channel = 2, .filter = 3}, {}, channels},
           {cosmoflow, {.channel = 4, .filter = 3}},  // some ranks have no channels of the first layers
           {normed, {.sample = 2, .channel = 2, .filter = 2}},
           {normed, {.depth = 2, .channel = 3, .filter = 2}, {}, channels},
           {alexnet, {.channel = 2, .filter = 2}},
           {mlperf, {.depth = 2, .channel = 2, .filter = 2}},
           {mlperf, {.channel = 2, .filter = 3}, {}, channels},
           {lbann, {.sample = 2, .channel = 2, .filter = 2}, {}, channels},
           {lbann, {.depth = 2, .height = 2, .channel = 2, .filter = 2}},
           {resnet, {.height = 2, .channel = 2, .filter = 2}},
           {resnet, {.sample = 2, .channel = 2, .filter = 2}, {}, channels},
           {cosmoflow, {.depth = 4}, {{"conv4-7", {.channel = 2, .filter = 2}, channels}, {"linear1", {.channel = 4}}}},
           {normed, {.channel = 2, .filter = 2}, {{"conv3-5", {.sample = 2, .depth = 2}}, {"linear1-2", {.sample = 4}}}},
           {mlperf, {.depth = 4}, {{"bottom", {.channel = 2, .filter = 2}}}},
           {cosmoflow, {.sample = 2, .channel = 2, .filter = 2}, {}, filters, true}},
          adam, 10);
}

TEST_CASE("layer grids: filters of some layers and channels of others, on one grid") {
  const std::string cosmoflow = "CosmoFlow", normed = "CosmoFlow with batch norm", alexnet = "AlexNet",
                    unet = "U-Net of maxima and batch norm", resnet = "ResNet-50 that begins as its shortcuts";
  compare({{cosmoflow, {.channel = 4}, {{"conv3", {.channel = 4}, channels}, {"linear1", {.channel = 4}, channels}}},
           {cosmoflow, {.channel = 3}, {{"conv2-5", {.channel = 3}, filters}}, channels},
           {normed, {.sample = 2, .channel = 2}, {{"conv2-4", {.sample = 2, .channel = 2}, channels}}},
           {alexnet,
            {.depth = 2, .channel = 2},
            {{"conv3", {.depth = 2, .channel = 2}, channels}, {"linear1", {.channel = 4}, channels}}},
           {unet, {.channel = 2}, {{"up1-2", {.channel = 2}, channels}}},
           {resnet, {.channel = 2}, {{"stage3", {.channel = 2}, channels}}}},
          adam, 20);
  // Layers on a grid equal to the network's use its input directly: no extra message is sent.
  const auto messages = [&](const std::vector<LayerExtents>& layers) {
    Traffic traffic;
    check_on_ranks(4, "traffic", [&](const Communicator& bare) {
      auto mine = training_of({cosmoflow, {.channel = 4}, layers}, counted(bare, traffic), network_named(cosmoflow));
      const auto optimizer = adam(*mine.net);
      mine.train(*optimizer, 0, 1);
    });
    return traffic.messages.load();
  };
  const auto alike = messages({});
  CHECK(messages({{"conv3-5", {.channel = 4}, channels}}) == alike);
  CHECK(messages({{"conv3-5", {.sample = 2, .channel = 2}, channels}}) > alike);
}

TEST_CASE("layer grids: more ranks than samples") {
  auto small = network_named("CosmoFlow");
  for (const std::int64_t batch : {1, 2}) {
    small.input[0] = small.target[0] = batch;
    const auto expected = trained_on_one(small, adam, 3, 0.5);
    const std::vector<Arrangement> arrangements{
        {"CosmoFlow", {.depth = 4}, {{"conv5-7", {.channel = 4}}, {"linear1-3", {.sample = 4}}}},
        {"CosmoFlow", {.sample = 2, .depth = 2}, {{"conv5-7", {.sample = 4}}}},
        {"CosmoFlow", {.depth = 3, .height = 2}, {{"conv4-7", {.depth = 2, .channel = 3}}, {"linear1-2", {.channel = 6}}}},
        {"CosmoFlow", {.depth = 2, .height = 2, .width = 2}, {{"conv5-7", {.sample = 2, .channel = 4}}}},
        {"CosmoFlow", {.sample = 8}, {{"conv1-4", {.depth = 8}}}}};
    for (const auto& a : arrangements)
      check_on_ranks(ranks_of(a.grid), text_of(a), [&](const Communicator& comm) {
        auto mine = training_of(a, comm, small);
        const auto optimizer = adam(*mine.net);
        mine.train(*optimizer, 0, 3, 0.5);
        require_trained(text_of(a), everything_of(*mine.net, optimizer.get()), expected);
      });
  }
}

TEST_CASE("layer grids: of a name that no layer has, of other ranks, without a layout") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto& network = network_named("CosmoFlow");
    const auto grid = make_grid(comm, {.depth = 2});
    const auto error_of = [&](const nn::BuildOptions& options) {
      return error_text([&] { (void)SplitTraining(network, grid, options); });
    };
    const auto unknown = error_of({.grids = {{"conv5-7", grid}, {"conv8-9", grid}}});
    require(unknown ==
                "[module] no layer with weights is called conv8-9; there are conv1, conv2, conv3, conv4, conv5, conv6, conv7, "
                "linear1, linear2, linear3",
            "[test] '{}'", unknown);
    const auto half = error_of({.grids = {{"conv", grid}}});
    require(half.starts_with("[module] no layer with weights is called conv; "), "[test] '{}'", half);
    const auto other = error_of({.grids = {{"conv5", make_grid(comm.subgroup(std::vector<int>{comm.rank()}), {})}}});
    require(other == "[module] the grid of conv5 has 1 ranks, the network's has 2; they must be the same", "[test] '{}'", other);
    CosmoFlow plain({.filters = 2});
    const auto layout = error_text([&] { plain.build(Shape{1, 16, 16, 16, 2}, {.sharded_weights = true}); });
    require(layout.find("need an input with a layout") != std::string::npos, "[test] '{}'", layout);
  });
}

TEST_CASE("layer grids: weights stored in parts") {
  const std::string cosmoflow = "CosmoFlow", normed = "CosmoFlow with batch norm", alexnet = "AlexNet, each layer its own way",
                    unet = "U-Net of strides and instance norm", resnet = "ResNet-50 that begins as its shortcuts";
  compare({{cosmoflow, {.sample = 2}, {}, filters, true},
           {normed, {.depth = 2, .height = 2}, {}, filters, true},
           {normed, {.sample = 2, .depth = 3}, {}, filters, true},
           {cosmoflow, {.depth = 4, .height = 2}, {{"conv5-7", {.sample = 8}}}, filters, true},
           {alexnet, {.sample = 2, .depth = 2}, {}, filters, true},
           {alexnet, {.depth = 2, .channel = 2}, {}, filters, true},  // layers that are split already stay so
           {unet, {.sample = 2, .depth = 3}, {}, filters, true},
           {resnet, {.sample = 4}, {{"stage4", {.sample = 2, .channel = 2}}}, filters, true}},
          adam, 20);
  compare({{cosmoflow, {.sample = 3}, {}, filters, true}, {normed, {.sample = 2, .height = 2}, {}, filters, true}}, lamb, 5);
}

TEST_CASE("layer grids: what weights in parts take, and what they send") {
  const auto& network = network_named("CosmoFlow");
  constexpr int ranks = 4;
  std::int64_t whole = 0, weights = 0;
  {
    SplitTraining one(network, nullptr);
    for (const auto& value : one.net->parameters().tensors()) {
      whole += value.elements();
      if (value.rank() > 1) weights += value.elements();
    }
  }
  Traffic traffic;
  check_on_ranks(ranks, "traffic", [&](const Communicator& bare) {
    const auto comm = counted(bare, traffic);
    SplitTraining mine(network, make_grid(comm, {.sample = ranks}), nn::BuildOptions{.sharded_weights = true});
    const auto optimizer = adam(*mine.net);
    std::int64_t parameters = 0, state = 0;
    for (const auto& value : mine.net->parameters().tensors()) parameters += value.elements();
    for (const auto& [name, value] : optimizer->state()) state += value.elements();
    const auto part = weights / ranks + whole - weights;  // all numbers of filters are multiples of four
    require(std::abs(parameters - part) < whole / 100 && std::abs(state - 2 * part) < whole / 50, "[test] {} and {} for {}",
            parameters, state, part);
    mine.train(*optimizer, 0, 1);
  });
  // For each weight, n (P - 1) elements from all ranks together, in the gather of the forward pass and in the reduction of the
  // backward pass; biases and the loss are reduced with 2 n (P - 1).
  CHECK(traffic.gathered == weights * (ranks - 1));
  CHECK(traffic.scattered == weights * (ranks - 1));
  CHECK(traffic.messages == 0);
  CHECK(traffic.other == 0);
}

TEST_CASE("layer grids: from the second step on a weight in parts is gathered while the layer before computes") {
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const UseDevice dry(DeviceKind::dry);
  const auto grid = make_grid(Communicator(dry_world(0, 2, log)), {.sample = 2});
  CosmoFlow net({.filters = 4});
  const auto layout = activation_layout(grid, {2, 16, 16, 16, 4});
  net.build(layout, {.device = DeviceKind::dry, .sharded_weights = true});
  const auto x = constant(Tensor({layout->box().extents(), DType::float32}).with_layout(layout));
  for (int step = 0; step < 3; ++step) {
    log->clear();
    Tape tape(net);
    (void)tape.gradient(sum(net(x)));
    const auto gathers = [&](bool started) {
      return std::count_if(log->begin(), log->end(),
                           [&](const auto& call) { return call.kind == CollectiveKind::allgather && call.started == started; });
    };
    constexpr int weights = 10;
    CHECK(gathers(false) == (step == 0 ? weights : 1));
    CHECK(gathers(true) == (step == 0 ? 0 : weights - 1));
  }
}

TEST_CASE("layer grids: a weight in parts that was gathered ahead and not used is released") {
  struct Two final : nn::Module {
    nn::Linear first{*this, "first", {.out = 64}}, second{*this, "second", {.out = 64}};
    bool both = true;
    Tensor operator()(const Tensor& x) override { return both ? second(first(x)) : first(x); }
  } net;
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const UseDevice dry(DeviceKind::dry);
  const auto layout = split_layout(make_grid(Communicator(dry_world(0, 2, log)), {.sample = 2}), {4, 32}, {0, -1, -1, -1});
  net.build(layout, {.device = DeviceKind::dry, .sharded_weights = true});
  const auto x = constant(Tensor({layout->box().extents(), DType::float32}).with_layout(layout));
  const auto started_of_step = [&](bool both) {
    log->clear();
    net.both = both;
    Tape tape(net);
    (void)tape.gradient(sum(net(x)));
    return std::count_if(log->begin(), log->end(),
                         [](const auto& call) { return call.kind == CollectiveKind::allgather && call.started; });
  };
  CHECK(started_of_step(true) == 0);
  CHECK(started_of_step(true) == 1);
  const auto before = memory_statistics(DeviceKind::dry).current_bytes;
  for (int step = 0; step < 2; ++step) CHECK(started_of_step(false) == 1 - step);  // the second time the order is forgotten
  CHECK(memory_statistics(DeviceKind::dry).current_bytes == before);
  CHECK(started_of_step(true) == 0);
  CHECK(started_of_step(true) == 1);
}

TEST_CASE("layer grids: weights in parts on ranks that share no memory, gathered while the layer before computes") {
  class Apart final : public ForwardingTransport {
   public:
    explicit Apart(const std::shared_ptr<Transport>& inner) : ForwardingTransport(alone(*inner), inner) {}

   protected:
    std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override { return std::make_shared<Apart>(made); }

   private:
    static Place alone(const Transport& ranks) {
      auto place = place_of(ranks);
      place.node_rank = 0, place.node_size = 1;
      return place;
    }
  };
  for (const auto& [name, grid] : {std::pair{"CosmoFlow with batch norm", GridExtents{.sample = 2, .depth = 2}},
                                   {"U-Net of strides and instance norm", {.sample = 2}}}) {
    const auto& network = network_named(name);
    const auto expected = trained_on_one(network, adam, 4, 0.5);
    check_on_ranks(ranks_of(grid), name, [&, grid = grid](const Communicator& comm) {
      const Arrangement parts{network.name, grid, {}, filters, true};
      auto mine = training_of(parts, Communicator(std::make_shared<Apart>(comm.shared_transport())), network);
      const auto optimizer = adam(*mine.net);
      mine.train(*optimizer, 0, 4, 0.5);
      require_trained(network.name, everything_of(*mine.net, optimizer.get()), expected);
    });
  }
}

TEST_CASE("layer grids: checkpoints, copies and comparisons of parts") {
  if (without_hdf5("checkpoints")) return;
  const auto& network = network_named("CosmoFlow with batch norm");
  const auto expected = trained_on_one(network, adam, 4, 0.5);
  const std::vector<Arrangement> arrangements{
      {network.name, {.sample = 2, .depth = 2}, {}, filters, true},
      {network.name, {.depth = 2}, {{"conv4-7", {.channel = 2}, channels}, {"linear1", {.channel = 2}}}},
      {network.name, {}}};
  Folder folder;
  for (std::size_t from = 0; from < arrangements.size(); ++from) {
    const auto &a = arrangements[from], &b = arrangements[(from + 1) % arrangements.size()];
    const auto file = folder.path / fmt::format("{}.h5", from);
    check_on_ranks(ranks_of(a.grid), text_of(a), [&](const Communicator& comm) {
      auto mine = training_of(a, comm, network);
      const auto optimizer = adam(*mine.net);
      mine.train(*optimizer, 0, 2, 0.5);
      require_same_parameters("[test]", mine.net->parameters(), comm.transport());
      save_checkpoint(file, *mine.net, comm, {.optimizer = optimizer.get()});
      // The network without a grid on each rank reports the same.
      SplitTraining alone(network, nullptr);
      nn::copy_whole(*mine.net, *alone.net);
      require_trained("copied", everything_of(*alone.net), everything_of(*mine.net), 0);
    });
    check_on_ranks(ranks_of(b.grid), text_of(b), [&](const Communicator& comm) {
      auto mine = training_of(b, comm, network);
      const auto optimizer = adam(*mine.net);
      load_checkpoint(file, *mine.net, {.optimizer = optimizer.get()});
      mine.train(*optimizer, 2, 4, 0.5);
      require_trained(text_of(b), everything_of(*mine.net, optimizer.get()), expected);
    });
  }
}
