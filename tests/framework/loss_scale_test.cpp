// Dynamic loss scaling: growth, overflows on any rank, clipping by the norms of unscaled gradients, checkpoints.

#include "framework/optim/loss_scale.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "comm/distributed/optimizer_reductions.h"
#include "models/train/checkpoint/checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Gradients gradients_of(const std::vector<double>& values) {
  return Gradients({from_vector({static_cast<std::int64_t>(values.size())}, values)});
}

class Scalar : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override {
    parameter("w", {1}, nn::constant_value(1));
    return x;
  }
};

}  // namespace

TEST_CASE("loss scale: it doubles after good steps in a row and halves at each overflow") {
  LossScale scale({.start = 8, .ranks = 4, .grow_after = 3});
  const auto good = gradients_of({1, 2});
  CHECK(scale.value() == 32);  // each of 4 ranks holds a quarter of the loss
  for (int i = 0; i < 2; ++i) CHECK(scale.unscaled(good));
  CHECK(scale.value() == 32);
  for (const double bad : {infinity, -infinity, std::nan("")}) CHECK_FALSE(scale.unscaled(gradients_of({1, bad})));
  CHECK(scale.value() == 4);
  CHECK(scale.skipped() == 3);
  for (int i = 0; i < 3; ++i) CHECK(scale.unscaled(good));  // the two good steps before the overflow no longer count
  CHECK(scale.value() == 8);
  CHECK(scale.skipped() == 3);
  CHECK(scale.unscaled(gradients_of({3e38, 3e38})));  // large, but finite
}

TEST_CASE("loss scale: norms and clipping are those without a scale") {
  LossScale scale({.start = 1024});
  const auto gradients = gradients_of({3 * 1024.0, 4 * 1024.0});
  const auto free = scale.unscaled(gradients);
  CHECK(free->norm == 5);
  CHECK(free->scale == 1.0 / 1024);
  CHECK(scale.unscaled(gradients, 10)->scale == 1.0 / 1024);
  CHECK(scale.unscaled(gradients, 1)->scale == doctest::Approx(0.2 / 1024).epsilon(1e-6));
  const auto plain = clip_global_norm(gradients_of({3, 4}), 1);
  CHECK(scale.unscaled(gradients, 1)->scale == plain.scale / 1024);
}

TEST_CASE("loss scale: what no scale helps is an error, as are numbers that make no sense") {
  LossScale scale({.start = 0x1p-22});
  const auto bad = gradients_of({infinity});
  for (int i = 0; i < 2; ++i) CHECK_FALSE(scale.unscaled(bad));
  CHECK(has(error_text([&] { scale.unscaled(bad); }), "[loss scale] the gradients are not finite"));
  CHECK(has(error_text([] { LossScale({.start = 0}); }), "[loss scale] the start is positive"));
  CHECK(has(error_text([] { LossScale({.grow_after = 0}); }), "[loss scale] it grows after at least one step"));
  CHECK(has(error_text([&] { scale.unscaled(bad, -1); }), "[loss scale] the largest norm is not negative"));
  CHECK(has(error_text([&] { scale.load_state({.value = 0}); }), "[loss scale] not a valid state: a scale of 0"));
}

TEST_CASE("loss scale: an overflow on one rank keeps all ranks from the step") {
  for (const int size : {1, 2, 3, 5})
    check_on_ranks(size, "overflow", [](const Communicator& comm) {
      LossScale scale({.start = 16, .ranks = comm.size(), .agree = all_agree(comm)});
      Parameters parameters;
      parameters.add("w", from_vector({1}, {1}), true);
      parameters.pack();
      SGD sgd(parameters, {.learning_rate = 1});
      for (int step = 0; step < 6; ++step) {
        // Even steps are good on all ranks; in each odd step another rank overflows.
        const bool bad = step % 2 == 1 && comm.rank() == step % comm.size();
        if (const auto use = scale.unscaled(gradients_of({bad ? infinity : 0.25 * scale.value()})))
          sgd.step(gradients_of({0.25 * scale.value()}), {.scale = use->scale});
      }
      require(scale.value() == 2.0 * comm.size() && scale.skipped() == 3, "[test] scale {}, {} skipped", scale.value(),
              scale.skipped());
      require(sgd.steps() == 3 && parameters[0].value.item() == 0.25, "[test] {} steps, w = {}", sgd.steps(),
              parameters[0].value.item());
    });
}

TEST_CASE("loss scale: a checkpoint resumes it where it was") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder.path / "net.h5", without = folder.path / "without.h5";
  on_ranks(1, [&](const Communicator& world) {
    Scalar net;
    net.build(Shape{1}, {});
    LossScale scale({.start = 64, .grow_after = 5});
    scale.unscaled(gradients_of({infinity}));
    for (int i = 0; i < 3; ++i) scale.unscaled(gradients_of({1}));
    save_checkpoint(file, net, world, {.loss_scale = &scale});
    save_checkpoint(without, net, world);
    LossScale resumed({.start = 1, .grow_after = 5});
    load_checkpoint(without, net, {.loss_scale = &resumed});
    CHECK(resumed.value() == 1);
    load_checkpoint(file, net, {.loss_scale = &resumed});
    for (int i = 0; i < 2; ++i) {
      CHECK(resumed.value() == 32);
      CHECK(resumed.skipped() == 1);
      resumed.unscaled(gradients_of({1}));
    }
    CHECK(resumed.value() == 64);  // after five good steps, three of them before the checkpoint
  });
}
