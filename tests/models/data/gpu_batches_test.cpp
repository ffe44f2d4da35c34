// Batches and views on a GPU, compared with those on a CPU.

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "models/data/data.h"
#include "models/data/view_loader.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/data/made_source.h"
#include "tests/models/train/values.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("gpu: batches and views are those of a CPU, also where they are kept") {
  if (no_gpu("gpu: batches and views are those of a CPU, also where they are kept")) return;
  for (const bool classes : {false, true})
    for (const auto dtype : {DType::float32, DType::float64}) {
      const MadeSamples samples{.samples = 11, .classes = classes};
      const auto loader_on = [&](DeviceKind on) {
        return data::Loader(
            std::make_shared<MadeSource>(samples),
            {.batch = 4, .seed = 3, .shuffle = true, .flips = true, .shifts = true, .dtype = dtype, .device = on});
      };
      const auto on_cpu = loader_on(DeviceKind::cpu), on_gpu = loader_on(DeviceKind::cuda);
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<data::Batch> kept;
        Values passing;
        std::size_t at = 0;
        for (const auto& batch : on_gpu.epoch(epoch)) {
          CHECK((batch.x.device() == DeviceKind::cuda && batch.x.is_constant() && batch.y.is_constant()));
          append(passing, sum(batch.x * 1.0));
          if (at++ != 1) kept.push_back(batch);  // the memory of the second batch is used again
        }
        std::size_t i = 0;
        at = 0;
        Values expected;
        for (const auto& batch : on_cpu.epoch(epoch)) {
          append(expected, sum(batch.x * 1.0));
          if (at++ == 1) continue;
          CHECK(kept[i].x.type() == batch.x.type());
          CHECK(kept[i].x.to_vector() == batch.x.to_vector());
          CHECK(kept[i].y.dtype() == batch.y.dtype());
          CHECK(kept[i++].y.to_vector() == batch.y.to_vector());
        }
        CHECK(i == kept.size());
        CHECK(difference(passing, expected) < 1e-3);
        CHECK(on_gpu.batch(epoch, 1).x.to_vector() == on_cpu.batch(epoch, 1).x.to_vector());
      }
    }
  on_ranks(2, [](const Communicator& world) {
    const auto loader_on = [&](DeviceKind on) {
      return data::ViewLoader(
          std::make_shared<MadeSource>(MadeSamples{.samples = 9, .classes = true}),
          {.grid = make_grid(world, {.depth = 2}), .batch = 4, .seed = 2, .views = {{.count = 2}}, .device = on});
    };
    const auto on_cpu = loader_on(DeviceKind::cpu), on_gpu = loader_on(DeviceKind::cuda);
    for (std::int64_t step = 0; step < on_cpu.steps(); ++step) {
      const auto expected = on_cpu.batch(0, step), got = on_gpu.batch(0, step);
      const auto same = [](const Tensor& a, const Tensor& b) {
        require(b.device() == DeviceKind::cuda && b.is_constant() && a.type() == b.type() && a.layout() && b.layout() &&
                    a.to_vector() == b.to_vector(),
                "[test] {} and {}", a, b);
      };
      for (std::size_t v = 0; v < 2; ++v) same(expected.x[v], got.x[v]);
      same(expected.labels[0], got.labels[0]);
      same(expected.indices, got.indices);
    }
  });
}

TEST_CASE("gpu: a batch stays until the step that uses it is done, however far the host is ahead, and no longer") {
  if (no_gpu("gpu: a batch stays until the step that uses it is done, however far the host is ahead, and no longer")) return;
  const auto sums = [](DeviceKind on) {
    UseDevice device(on);
    const data::Loader loader(std::make_shared<MadeSource>(MadeSamples{.samples = 24}), {.batch = 2, .dtype = DType::float64});
    Tensors found;
    for (const auto& batch : loader.epoch(0)) {
      Tensor slow = zeros_like(batch.x);
      for (int i = 0; i < 40; ++i) slow = slow * 0.5 + 1;
      found.push_back(sum(square(batch.x * slow), {1, 2, 3, 4}));
    }
    Values values;
    for (const auto& each : found) append(values, each);
    return values;
  };
  CHECK(difference(sums(DeviceKind::cuda), sums(DeviceKind::cpu)) < 1e-9);
  // Then its memory is used again, and an epoch may be left early.
  UseDevice device(DeviceKind::cuda);
  const data::Loader loader(std::make_shared<MadeSource>(MadeSamples{.samples = 16}), {.batch = 2});
  std::vector<const std::byte*> places;
  for (const auto& batch : loader.epoch(0)) places.push_back(batch.x.raw());
  REQUIRE(places.size() == 8);
  for (std::size_t i = 2; i < places.size(); ++i) CHECK(places[i] == places[i - 2]);
  CHECK(places[0] != places[1]);
  for (int round = 0; round < 3; ++round)
    for (const auto& batch : loader.epoch(1)) {
      CHECK(batch.x.to_vector() == loader.batch(1, 0).x.to_vector());
      break;
    }
}
