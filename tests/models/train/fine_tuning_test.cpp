// Fine-tuning: weights of another network, as far as they match, and frozen parameters, which do not change and are not reduced.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "models/train/checkpoint/checkpoint.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/train/checkpoint_helpers.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::checkpoints;

TEST_CASE("checkpoint: weights of another network, as far as they go") {
  if (without_hdf5("checkpoint: weights of another network")) return;
  const Folder folder;
  // The same convolutions, another number of targets.
  const auto built = [](std::int64_t targets, std::uint64_t seed) {
    auto options = small();
    options.targets = targets;
    auto net = std::make_unique<CosmoFlow>(options);
    net->build(Shape{1, 16, 16, 16, 4}, {.seed = seed, .dtype = DType::float64});
    return net;
  };
  const auto value = [](CosmoFlow& net, const std::string& name) { return net.parameters().find(name).value.to_vector(); };
  const auto four = built(4, 1), two = built(2, 2);
  const auto file = folder / "four.h5";
  run_threads(1, [&](std::shared_ptr<Transport> transport) { save_checkpoint(file, *four, Communicator(transport)); });
  const auto before = everything(*two);
  CHECK(has(error_text([&] { load_checkpoint(file, *two); }), "linear3"));

  auto taken = take_weights(file, *two);
  CHECK(taken.left == std::vector<std::string>{"linear3.weight", "linear3.bias"});
  CHECK(taken.unused == std::vector<std::string>{"linear3.bias", "linear3.weight"});
  CHECK(taken.taken.size() + 2 == two->parameters().size() + two->buffers().size());
  CHECK(value(*two, "conv1.weight") == value(*four, "conv1.weight"));
  CHECK(value(*two, "linear2.weight") == value(*four, "linear2.weight"));

  // Patterns: the named weights must exist with this shape; other weights do not change.
  const auto again = built(4, 3);
  const auto conv2 = value(*again, "conv2.weight");
  taken = take_weights(file, *again, {.patterns = {{"conv1.*"}, {"linear*"}}});
  CHECK(value(*again, "conv1.weight") == value(*four, "conv1.weight"));
  CHECK(value(*again, "linear3.bias") == value(*four, "linear3.bias"));
  CHECK(value(*again, "conv2.weight") == conv2);
  CHECK(std::find(taken.left.begin(), taken.left.end(), "conv2.weight") != taken.left.end());
  // Under other names.
  take_weights(file, *again, {.patterns = {{"linear2.bias", "linear2.bias"}, {"conv2.weig*", "conv2.weig*"}}});
  CHECK(value(*again, "conv2.weight") == value(*four, "conv2.weight"));
  const auto unchanged = everything(*again);
  const auto refused = [&](const std::vector<TakeOptions::Pattern>& patterns, CosmoFlow& net) {
    return error_text([&] { take_weights(file, net, {.patterns = patterns}); });
  };
  CHECK(has(refused({{"conv9.*"}}, *again), "nothing that is called 'conv9.*'"));
  CHECK(has(refused({{"conv1.*", "first.*"}}, *again), "has no parameters/first."));
  CHECK(has(refused({{"conv1.weight", "conv2.weight"}}, *again), "parameters/conv2.weight"));
  CHECK(has(refused({{"*.*", "a.*"}}, *again), "as many *"));
  CHECK(has(refused({{"linear3.*"}}, *two), "the network's linear3.weight is float64 [2, "));
  CHECK(everything(*again) == unchanged);
}

TEST_CASE("checkpoint: frozen parameters stay, the others learn as if they were all that there is") {
  for (const int ranks : {1, 2})
    check_on_ranks(ranks, "frozen", [](const Communicator& comm) {
      Session session(comm);
      CosmoFlow net(small());
      const GridExtents extents{.depth = comm.size()};
      net.build(activation_layout(session.grid(extents), {4, 16, 16, 16, 4}), {.seed = 5, .dtype = DType::float64});
      auto& parameters = net.parameters();
      require(parameters.freeze("conv*") > 2 && parameters.freeze("linear1.weight") == 1, "[test] patterns");
      require(has(error_text([&] { parameters.freeze("none*"); }), "none is called"), "[test] a pattern of nothing");
      Adam adam(net, AdamAttributes{.learning_rate = 0.01, .weight_decay = 0.1});
      std::vector<std::vector<double>> before;
      for (const auto& value : parameters.tensors()) before.push_back(value.to_vector());
      train(session, extents, net, adam, 0, 2);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const bool same = parameters[i].value.to_vector() == before[i];
        require(same == parameters[i].frozen, "[test] {} {}", parameters[i].name, same ? "stayed" : "changed");
      }
      // The other parameters have the same gradients, summed over micro-batches.
      const auto x = constant(random_normal({4, 16, 16, 16, 4}, {9}, 0, 1, DType::float64,
                                            activation_layout(session.grid(extents), {4, 16, 16, 16, 4})));
      net.set_step(7);
      const auto gradients = [&] {
        Tape first(net);
        first.gradient(sum(square(net(x))), {.accumulate = true});
        Tape second(net);
        return second.gradient(sum(net(x)), {.accumulate = false});
      };
      const auto frozen = gradients();
      parameters.freeze("*", false);
      const auto all = gradients();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const bool was = parameters[i].name.starts_with("conv") || parameters[i].name == "linear1.weight";
        const auto found = frozen[i].to_vector();
        if (was) require(found == std::vector<double>(found.size(), 0.0), "[test] {}: a gradient", parameters[i].name);
        else require(found == all[i].to_vector(), "[test] {}: another gradient", parameters[i].name);
      }
    });
}

TEST_CASE("checkpoint: nothing is reduced for frozen parameters") {
  Traffic traffic{.type = DType::float64};
  const auto reduced = [&](bool freeze) {
    traffic.reduced = traffic.scattered = traffic.gathered = 0;
    run_threads(2, [&](std::shared_ptr<Transport> transport) {
      const Communicator comm(std::make_shared<CountingTransport>(std::move(transport), traffic));
      Session session(comm);
      CosmoFlow net(small());
      net.build(activation_layout(session.grid({.sample = 2}), {4, 16, 16, 16, 4}), {.seed = 5, .dtype = DType::float64});
      if (freeze) net.parameters().freeze("conv*"), net.parameters().freeze("norm*");
      Adam adam(net, AdamAttributes{});
      const auto before = traffic.reduced.load();
      comm.transport().barrier();
      train(session, {.sample = 2}, net, adam, 0, 1);
      comm.transport().barrier();
      require(traffic.reduced >= before, "[test] counted");
    });
    return traffic.reduced + traffic.scattered + traffic.gathered;
  };
  CosmoFlow net(small());
  net.build(Shape{4, 16, 16, 16, 4}, {.dtype = DType::float64});
  std::int64_t frozen = 0;
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    const auto& parameter = net.parameters()[i];
    if (parameter.name.starts_with("conv") || parameter.name.starts_with("norm")) frozen += parameter.value.elements();
  }
  // 2 n (P - 1) numbers of an allreduce, or of a sum of rows and the gather of new ones, once for each element that is not
  // frozen; statistics of norms are unchanged, except that unneeded backward passes are missing.
  CHECK(reduced(false) - reduced(true) >= 2 * frozen);
}
