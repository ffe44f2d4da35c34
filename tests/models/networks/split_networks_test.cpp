// Networks with layers split along channels, also combined with split samples and space: their initial and their trained numbers
// equal those of one rank, also with norms of all weights and gradients.

#include "tests/models/networks/split_networks.h"

#include <doctest/doctest.h>

#include "comm/distributed/same_parameters.h"
#include "framework/optim/optimizer.h"
#include "models/train/checkpoint/checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// With the usual epsilon, gradients close to zero would show their rounding.
std::unique_ptr<Optimizer> adam(Parameters& parameters) {
  return std::make_unique<Adam>(parameters, AdamAttributes{.learning_rate = 0.002, .epsilon = 1e-2, .weight_decay = 0.1});
}

std::string text_of(const GridExtents& e) {
  return fmt::format("sample {} depth {} height {} channel {}", e.sample, e.depth, e.height, e.channel);
}

std::vector<GridExtents> grids_for(const SplitNetwork& network) {
  const bool images = network.input[1] == 1;
  std::vector<GridExtents> grids{{.channel = 2}, {.channel = 3}, {.sample = 2, .channel = 2}};
  grids.push_back(images ? GridExtents{.height = 2, .channel = 2} : GridExtents{.depth = 2, .channel = 2});
  grids.push_back(images ? GridExtents{.height = 2, .channel = 3} : GridExtents{.depth = 3, .channel = 2});
  return grids;
}

const SplitNetwork& network_named(const std::vector<SplitNetwork>& all, std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& network) { return network.name == name; });
  REQUIRE(found != all.end());
  return *found;
}

Trained trained_on_one(const SplitNetwork& network, const OptimizerMaker& make, int steps, double max_norm = 0) {
  SplitTraining one(network, nullptr);
  const auto optimizer = make(*one.net);
  one.train(*optimizer, 0, steps, max_norm);
  return everything_of(*one.net, optimizer.get());
}

}  // namespace

TEST_CASE("split networks: trained, they are those of one rank") {
  constexpr int steps = 3;
  for (const auto& network : split_networks()) {
    const auto expected = trained_on_one(network, adam, steps, 0.5);
    for (const auto& grid : grids_for(network))
      check_on_ranks(ranks_of(grid), network.name + " on " + text_of(grid), [&](const Communicator& comm) {
        SplitTraining mine(network, make_grid(comm, grid));
        const auto optimizer = adam(*mine.net);
        mine.train(*optimizer, 0, steps, 0.5);
        require_trained(network.name, everything_of(*mine.net, optimizer.get()), expected);
      });
  }
}

TEST_CASE("split networks: weights and the optimizer's state are a part of what they are on one rank") {
  const auto networks = split_networks();
  const auto& network = network_named(networks, "CosmoFlow with batch norm");
  const auto bytes_of = [](nn::Module& net) {
    const auto optimizer = std::make_unique<Adam>(net, AdamAttributes{.replicated = true});
    std::int64_t bytes = 0;
    for (const auto& value : net.parameters().tensors()) bytes += value.bytes();
    for (const auto& [name, value] : optimizer->state()) bytes += value.bytes();
    for (const auto& [name, value] : net.buffers()) bytes += value.bytes();
    return static_cast<double>(bytes);
  };
  SplitTraining one(network, nullptr);
  const double whole = bytes_of(*one.net);
  for (const int ranks : {2, 4})
    check_on_ranks(ranks, "memory", [&](const Communicator& comm) {
      SplitTraining mine(network, make_grid(comm, {.channel = ranks}));
      const double part = bytes_of(*mine.net) * ranks / whole;
      // Except for the bias of the last layer, whose result is replicated.
      require(part > 0.999 && part < 1.001, "[test] {} of a rank's share", part);
      // A network without splitting is replicated on each rank.
      SplitTraining replicated(network, make_grid(comm, {.channel = ranks}), ChannelSplit::none);
      require(bytes_of(*replicated.net) == whole, "[test] replicated");
    });
}

TEST_CASE("split networks: norms of weights and gradients are those of the whole") {
  const auto networks = split_networks();
  const auto& network = network_named(networks, "AlexNet, each layer its own way");
  const std::vector<std::pair<std::string, OptimizerMaker>> optimizers{
      {"LARS", [](Parameters& p) { return std::make_unique<LARS>(p, LarsAttributes{.learning_rate = 1, .trust = 0.1}); }},
      {"LAMB", [](Parameters& p) { return std::make_unique<LAMB>(p, LambAttributes{.learning_rate = 0.01, .epsilon = 1e-2}); }},
      {"SGD", [](Parameters& p) {
         return std::make_unique<SGD>(p, SGDAttributes{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
       }}};
  for (const auto& [name, make] : optimizers) {
    const auto expected = trained_on_one(network, make, 4, 0.3);
    for (const GridExtents grid : {GridExtents{.channel = 3}, GridExtents{.depth = 2, .channel = 2}})
      check_on_ranks(ranks_of(grid), name, [&, &make = make](const Communicator& comm) {
        SplitTraining mine(network, make_grid(comm, grid));
        const auto optimizer = make(*mine.net);
        mine.train(*optimizer, 0, 4, 0.3);
        require_trained("trained", everything_of(*mine.net, optimizer.get()), expected);
      });
  }

  // The norm itself, of gradients from the tape or from elsewhere, and of accumulated ones.
  double expected = 0;
  const auto norm_on = [&](const GridPtr& grid, bool parts) {
    SplitTraining mine(network, grid);
    const auto x = mine.data(network.input, 0, 1, mine.of_x), y = mine.data(network.target, 0, 2, mine.of_y);
    if (parts) {
      Tape tape(*mine.net);
      tape.gradient(mse((*mine.net)(x), y) * 0.25, {.accumulate = true});
    }
    mine.net->set_step(0);
    Tape tape(*mine.net);
    const auto gradients = tape.gradient(mse((*mine.net)(x), y) * (parts ? 0.75 : 1), {.accumulate = false});
    return clip_global_norm(gradients, 1).norm;
  };
  expected = norm_on(nullptr, false);
  check_on_ranks(4, "norm", [&](const Communicator& comm) {
    for (const bool parts : {false, true}) {
      const double found = norm_on(make_grid(comm, {.depth = 2, .channel = 2}), parts);
      require(std::abs(found - expected) < 1e-12 * expected, "[test] norm {} for {}", found, expected);
    }
  });
}

TEST_CASE("split networks: blocks that should be the same are compared, others are not") {
  const auto networks = split_networks();
  const auto& network = network_named(networks, "CosmoFlow");
  check_on_ranks(4, "same", [&](const Communicator& comm) {
    SplitTraining mine(network, make_grid(comm, {.depth = 2, .channel = 2}));
    auto& parameters = mine.net->parameters();
    require_same_parameters("[test]", parameters, comm.transport());
    auto& weight = parameters[2].value;
    if (comm.rank() == 1) weight.mutable_data<double>()[0] += 1;
    const auto text = error_text([&] { require_same_parameters("[test]", parameters, comm.transport()); });
    require(text.starts_with(fmt::format("[test]: {} is not the same", parameters[2].name)) &&
                text.find("rank 1 ") != std::string::npos && text.find("rank 3 ") != std::string::npos &&
                text.find("rank 0") == std::string::npos,
            "[test] {}", text);
  });
}

TEST_CASE("split networks: averaged weights, and evaluation") {
  const auto networks = split_networks();
  const auto& network = network_named(networks, "CosmoFlow with batch norm");
  const auto evaluated = [&](const GridPtr& grid) {
    SplitTraining mine(network, grid);
    const auto optimizer = adam(*mine.net);
    AveragedWeights averages(*mine.net, {.decay = 0.5});
    for (int step = 0; step < 3; ++step) mine.train(*optimizer, step, step + 1), averages.update();
    averages.swap();
    const nn::EvaluationMode evaluation(*mine.net);
    Trained result = everything_of(*mine.net);
    const Untaped scope;
    result["scores"] = whole_values((*mine.net)(mine.data(network.input, 9, 1, mine.of_x)));
    // Channels split differently than in training.
    if (grid)
      result["scores of split channels"] =
          whole_values((*mine.net)(mine.data(network.input, 9, 1, activation_layout(grid, network.input))));
    else result["scores of split channels"] = result["scores"];
    return result;
  };
  const auto expected = evaluated(nullptr);
  for (const GridExtents grid : {GridExtents{.channel = 2}, GridExtents{.depth = 2, .channel = 3}})
    check_on_ranks(ranks_of(grid), "evaluation",
                   [&](const Communicator& comm) { require_trained("evaluation", evaluated(make_grid(comm, grid)), expected); });
}

TEST_CASE("split networks: checkpoints go from any grid to any other") {
  if (without_hdf5("checkpoints")) return;
  const auto networks = split_networks();
  const std::vector<GridExtents> grids{{}, {.channel = 2}, {.depth = 2, .channel = 2}, {.channel = 3}};
  for (const auto* name : {"CosmoFlow with batch norm", "AlexNet, each layer its own way"}) {
    const auto& network = network_named(networks, name);
    const auto expected = trained_on_one(network, adam, 4);
    Folder folder;
    const auto on = [&](const GridExtents& grid, const RankBody& body) { check_on_ranks(ranks_of(grid), name, body); };
    const auto grid_of = [](const Communicator& comm, const GridExtents& grid) {
      return comm.size() == 1 ? nullptr : make_grid(comm, grid);
    };
    for (std::size_t from = 0; from < grids.size(); ++from) {
      const auto file = folder.path / fmt::format("{}.h5", from);
      on(grids[from], [&](const Communicator& comm) {
        SplitTraining mine(network, grid_of(comm, grids[from]));
        const auto optimizer = adam(*mine.net);
        AveragedWeights averages(*mine.net);
        mine.train(*optimizer, 0, 2), averages.update();
        save_checkpoint(file, *mine.net, comm, {.optimizer = optimizer.get(), .averages = &averages});
        // All ranks report an error.
        const auto text = error_text([&] { save_checkpoint(folder.path, *mine.net, comm, {.optimizer = optimizer.get()}); });
        require(text.find("a folder is in the way") != std::string::npos, "[test] '{}'", text);
      });
      const auto to = grids[(from + 1) % grids.size()];
      on(to, [&](const Communicator& comm) {
        SplitTraining mine(network, grid_of(comm, to));
        const auto optimizer = adam(*mine.net);
        AveragedWeights averages(*mine.net);
        for (auto value : mine.net->parameters().tensors()) std::fill_n(value.mutable_data<double>(), value.elements(), 0.0);
        load_checkpoint(file, *mine.net, {.optimizer = optimizer.get(), .averages = &averages});
        mine.train(*optimizer, 2, 4);
        require_trained(name, everything_of(*mine.net, optimizer.get()), expected);
      });
    }
  }
}

TEST_CASE("split networks: what a layer cannot be is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.channel = 2});
    struct Net : nn::Sequential {
      explicit Net(const std::string& axis) {
        add<nn::Conv3d>("conv", {.out = 4, .split = nn::LayerSplit(ChannelSplit::filters, axis)});
      }
    };
    Net net("filter");
    const auto text = error_text([&] { net.build(input_layout(grid, {1, 4, 4, 4, 2})); });
    require(text == "[conv] is to be split along the axis filter, which the grid does not have", "[test] '{}'", text);
    // One axis alone, where the usual second one is asked for.
    Net alone("filter");
    alone.build(input_layout(make_grid(comm, {.filter = 2}), {1, 4, 4, 4, 2}));
    require(alone.parameters()[0].value.shape() == Shape{2, 1, 1, 1, 2}, "[test] {}", alone.parameters()[0].value);
    // Along a sample axis weights are stored in parts and gathered for use.
    const auto samples = make_grid(comm, {.sample = 2});
    Net stored("sample");
    stored.build(input_layout(samples, {2, 4, 4, 4, 2}), {.dtype = DType::float64});
    require(stored.parameters()[0].value.shape() == Shape{2, 1, 1, 1, 2}, "[test] {}", stored.parameters()[0].value);
    const auto x =
        constant(random_normal({2, 4, 4, 4, 2}, Philox{1, 2}, 0, 1, DType::float64, input_layout(samples, {2, 4, 4, 4, 2})));
    Tape tape(stored);
    const auto gradients = tape.gradient(mse(stored(x), constant(stored(x) * 0)));
    require(gradients[0].shape() == Shape{2, 1, 1, 1, 2}, "[test] {}", gradients[0]);
  });
}
