// Optimizers whose work ranks divide: every step equals that of ranks which make all updates, bit for bit where no norm enters.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/nn/sequential.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/train/divided_training.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::divided;

namespace {

// The result of every rank.
std::vector<Result> trained(int ranks, const Case& c, bool replicated, int steps = 3) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  check_on_ranks(ranks, c.optimizer, [&](const Communicator& world) {
    results[static_cast<std::size_t>(world.rank())] = Training(world, c, replicated).run(0, steps);
  });
  return results;
}

double largest_difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].size() == b[i].size());
    for (std::size_t j = 0; j < a[i].size(); ++j) largest = std::max(largest, std::abs(a[i][j] - b[i][j]));
  }
  return largest;
}

// Root of the mean square: where a gradient is nearly zero, its rounding decides the direction of a step of Adam.
double mean_difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double squares = 0, count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) squares += std::pow(a[i][j] - b[i][j], 2), ++count;
  return std::sqrt(squares / count);
}

void compare(int ranks, const Case& c, bool exact) {
  CAPTURE(c.optimizer);
  CAPTURE(ranks);
  const auto divided = trained(ranks, c, false), whole = trained(ranks, c, true);
  CHECK(divided[0].work.starts_with(fmt::format("each of {} ranks", ranks)));
  CHECK(whole[0].work.find("optimizer.replicated") != std::string::npos);
  std::int64_t state = 0;
  for (std::size_t r = 0; r < divided.size(); ++r) {
    CHECK(divided[r].parameters == divided[0].parameters);
    CHECK(divided[r].gradients == whole[r].gradients);
    CHECK(divided[r].all_state == whole[r].state_bytes);
    // Groups of 16 rows of 513 elements stay together.
    CHECK(static_cast<double>(divided[r].state_bytes) ==
          doctest::Approx(static_cast<double>(divided[r].all_state) / ranks).epsilon(0.07));
    CHECK(divided[r].skipped == (c.overflow ? 1 : 0));
    state += divided[r].state_bytes;
  }
  CHECK(state == whole[0].state_bytes);
  if (exact) CHECK(divided[0].parameters == whole[0].parameters);
  else CHECK(largest_difference(divided[0].parameters, whole[0].parameters) < 1e-6);
  const auto alone = trained(1, c, false);
  CHECK(alone[0].work.starts_with("every rank updates all"));
  CHECK(mean_difference(divided[0].parameters, alone[0].parameters) < 1e-5);
}

}  // namespace

TEST_CASE("divided optimizers make the steps of undivided ones") {
  for (const auto& name : optimizer_names()) {
    const bool norms = name == "lars" || name == "lamb";
    compare(2, {.optimizer = name}, !norms);
  }
  for (const int ranks : {3, 4}) {
    compare(ranks, {}, true);
    compare(ranks, {.optimizer = "lamb"}, false);
  }
}

TEST_CASE("divided optimizers clip, accumulate, skip, freeze and average as undivided ones") {
  compare(2, {.clip = 0.05}, false);
  compare(3, {.parts = 2}, true);
  compare(3, {.clip = 0.05, .overflow = true}, false);
  compare(2, {.overflow = true}, true);
  compare(2, {.frozen = true, .average = true}, true);
  compare(3, {.parts = 2, .reads_gradients = true}, true);
}

TEST_CASE("the state of divided optimizers moves to other numbers of ranks and back") {
  if (without_hdf5("checkpoints")) return;
  const auto uninterrupted = trained(2, {.optimizer = "lamb"}, true, 4);
  struct Leg {
    int ranks;
    bool replicated;
  };
  Folder folder;
  const auto file = folder.path / "net.h5";
  int step = 0;
  std::vector<std::vector<double>> last;
  for (const auto& leg : {Leg{2, false}, Leg{3, true}, Leg{4, false}, Leg{1, false}}) {
    check_on_ranks(leg.ranks, "resumed", [&, leg](const Communicator& world) {
      Training training(world, {.optimizer = "lamb"}, leg.replicated);
      if (step > 0) (void)load_checkpoint(file, training.net, {.optimizer = training.optimizer.get()});
      const auto result = training.run(step, 1);
      save_checkpoint(file, training.net, world, {.optimizer = training.optimizer.get()});
      if (world.rank() == 0) last = result.parameters;
    });
    ++step;
  }
  CHECK(largest_difference(last, uninterrupted[0].parameters) < 1e-4);
}

TEST_CASE("a divided optimizer takes whole tensors of state, and gradients that are not sums of rows") {
  check_on_ranks(3, "states", [](const Communicator& world) {
    Training divided(world, {}, false), whole(world, {}, true);
    (void)whole.run(0, 1);
    for (std::size_t i = 0; i < divided.net.parameters().size(); ++i) {
      const auto to = divided.net.parameters()[i].value, from = whole.net.parameters()[i].value;
      std::copy_n(from.raw(), from.bytes(), to.raw());
    }
    divided.optimizer->load_state(whole.optimizer->state(), whole.optimizer->steps());
    // New tensors with the same elements: whole sums, which every rank has.
    std::vector<Tensor> doubled;
    const auto gradients = whole.gradients(1);
    for (const auto& each : gradients.tensors()) doubled.push_back(each * 2.0);
    divided.optimizer->step(Gradients(doubled)), whole.optimizer->step(Gradients(doubled));
    for (std::size_t i = 0; i < divided.net.parameters().size(); ++i)
      CHECK(divided.net.parameters()[i].value.to_vector() == whole.net.parameters()[i].value.to_vector());
    // Without its optimizer the parameters' gradients are whole again.
    divided.optimizer = nullptr;
    CHECK(divided.net.parameters().division() == nullptr);
    const auto again = divided.gradients(2), same = whole.gradients(2);
    CHECK(again[0].to_vector() == same[0].to_vector());
  });
}

TEST_CASE("a step of a divided optimizer passes as much to collectives as an allreduce sends") {
  constexpr int ranks = 4;
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const UseDevice dry(DeviceKind::dry);
  const Communicator world(dry_world(1, ranks, log));
  Net net;
  net.build(split_layout(grid_on(world), {samples, 20}, {0, -1, -1, -1}), {.device = DeviceKind::dry});
  Adam adam(net);
  std::int64_t all = 0;
  for (const auto& value : net.parameters().tensors()) all += value.bytes();
  for (int step = 0; step < 2; ++step) {
    log->clear();
    const auto layout = split_layout(grid_on(world), {samples, 20}, {0, -1, -1, -1});
    Tape tape(net);
    adam.step(tape.gradient(sum(net(constant(Tensor({layout->box().extents(), DType::float32}).with_layout(layout))))));
    std::int64_t scattered = 0, gathered = 0, summed = 0;
    for (const auto& call : *log) {
      if (call.is_message()) continue;
      CHECK(call.started);
      if (call.kind == CollectiveKind::reduce_scatter) scattered += call.bytes;
      if (call.kind == CollectiveKind::allgather) gathered += call.bytes;
      if (call.kind == CollectiveKind::allreduce) summed += call.bytes;
    }
    CHECK(scattered == all);
    CHECK(gathered == adam.own_elements() * 4);
    CHECK(summed == 0);
  }
}

TEST_CASE("the ranks of a divided optimizer send what an allreduce sends") {
  for (const int ranks : {2, 3}) {
    const auto sent = [&](bool replicated) {
      Traffic traffic{.type = DType::float32};
      on_ranks(ranks, [&](const Communicator& bare) {
        (void)Training(counted(bare, traffic), {}, replicated).run(0, 1);
        bare.transport().barrier();
      });
      CHECK((replicated ? traffic.scattered : traffic.reduced) == 0);
      return traffic.all();
    };
    CHECK(sent(false) == sent(true));
  }
}

TEST_CASE("little state, and weights that the program owns, are not divided") {
  check_on_ranks(2, "small", [](const Communicator& world) {
    nn::Sequential net;
    net.add<nn::Linear>("only", {.out = 64});
    net.build(split_layout(grid_on(world), {4, 1000}, {0, -1, -1, -1}));
    Adam adam(net);
    CHECK(adam.work() == "every rank updates all of its weights: less than 1 MiB of state could be divided");
    SGD without_state(net);
    CHECK(without_state.work() == adam.work());
    CHECK(adam.state()[0].value.shape() == net.parameters()[0].value.shape());
  });
  Parameters parameters;
  parameters.add("w", zeros({600, 600}), true);
  parameters.pack();
  CHECK(Adam(parameters).work() == "every rank updates all of its weights: no parameter is replicated on several ranks");
}
