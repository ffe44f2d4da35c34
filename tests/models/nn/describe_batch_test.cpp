// The numbers of describe() for a batch, compared with the same step when it runs: memory on one rank, messages and reductions on
// ranks as threads.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "framework/tensor/storage.h"
#include "models/nn/describe.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/support/noting_transport.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

class Small : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override { return linear_(global_avg_pool(norm_(conv_(x)))); }

 private:
  nn::Conv3d conv_{*this, "conv", {.out = 8, .kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm norm_{*this, "norm", {.activation = Activation::relu}};
  nn::Linear linear_{*this, "linear", {.out = 3}};
};

// Counts the bytes of a rank's calls before it passes them on.
struct Bytes {
  std::int64_t sent = 0, reduced = 0;
};
class Counting final : public NotingTransport<Counting, std::shared_ptr<Bytes>> {
 public:
  using NotingTransport::NotingTransport;
  void note(const Collective& call) const {
    if (call.kind == CollectiveKind::allreduce) notes_->reduced += call.count * size_of(call.type);
  }
  void note(std::span<const Message> sends, DType type) const {
    for (const auto& message : sends) notes_->sent += message.count * size_of(type);
  }
};

constexpr DType dtype = DType::float32;

std::unique_ptr<Optimizer> adam(Parameters& parameters) { return std::make_unique<Adam>(parameters); }

// A step of the optimizer as in fit().
void real_step(Small& net, Optimizer& optimizer, const GridPtr& grid, Shape input, std::int64_t parts) {
  input[0] /= parts;
  const auto layout = activation_layout(grid, input);
  for (std::int64_t i = 0; i < parts; ++i) {
    const auto x = constant(random_normal(input, {.key = 1}, 0, 1, dtype, layout));
    Tape tape(net);
    const auto gradients = tape.gradient(sum(net(x)), {.accumulate = i + 1 < parts});
    if (i + 1 == parts) optimizer.step(gradients);
  }
}

}  // namespace

TEST_CASE("describe counts the batch asked for: memory as in a step that runs, the optimizer's state included") {
  for (const auto& sizes : {std::pair{std::int64_t{1}, std::int64_t{1}}, {6, 1}, {12, 1}, {12, 3}}) {
    const auto batch = sizes.first, parts = sizes.second;
    CAPTURE(batch);
    CAPTURE(parts);
    const Shape input{batch, 16, 16, 16, 2};
    Small described;
    const auto d = describe(described, input, {.dtype = dtype, .accumulate = parts, .optimizer = adam});
    CHECK(d.optimizer_bytes >= 2 * 4 * d.parameters);
    CHECK(d.optimizer_bytes <= 2 * (4 * d.parameters + 5 * 64));  // each of the five begins at a new cache line
    CHECK(d.input == input);
    CHECK((d.reduced_bytes == 0 && d.sent_bytes == 0));
    check_on_ranks(1, "a real step", [&, batch = batch, parts = parts](const Communicator& world) {
      const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
      Small net;
      net.build({batch / parts, 16, 16, 16, 2}, {.dtype = dtype});
      const auto optimizer = adam(net.parameters());
      reset_peak_memory(DeviceKind::cpu);
      real_step(net, *optimizer, make_grid(world, {}), input, parts);
      const auto peak = memory_statistics(DeviceKind::cpu).peak_bytes - before;
      CAPTURE(peak);
      CHECK(static_cast<double>(d.peak_bytes) == doctest::Approx(static_cast<double>(peak)).epsilon(0.1));
    });
  }
}

TEST_CASE("describe counts the batch asked for: work in proportion, parts together as much as the whole") {
  Small one, six, parts, forgetful;
  const auto a = describe(one, {1, 16, 16, 16, 2}, {.optimizer = adam});
  const auto b = describe(six, {6, 16, 16, 16, 2}, {.optimizer = adam});
  const auto c = describe(parts, {6, 16, 16, 16, 2}, {.accumulate = 3, .optimizer = adam});
  const auto d = describe(forgetful, {6, 16, 16, 16, 2});
  CHECK(b.forward_gflop == doctest::Approx(6 * a.forward_gflop).epsilon(1e-3));
  CHECK(c.forward_gflop == doctest::Approx(b.forward_gflop).epsilon(1e-3));
  CHECK(b.backward_gflop == doctest::Approx(6 * a.backward_gflop).epsilon(0.02));
  CHECK(c.backward_gflop == doctest::Approx(b.backward_gflop).epsilon(0.02));
  CHECK(b.activation_bytes == 6 * a.activation_bytes);
  CHECK(c.activation_bytes == 2 * a.activation_bytes);
  CHECK((a.peak_bytes < c.peak_bytes && c.peak_bytes < b.peak_bytes));
  CHECK(d.optimizer_bytes == 0);
  CHECK(d.peak_bytes == b.peak_bytes - b.optimizer_bytes);
  Small odd;
  CHECK(has(error_text([&] { describe(odd, {6, 16, 16, 16, 2}, {.accumulate = 4}); }), "4 equal parts"));
}

TEST_CASE("describe counts the batch asked for: messages and reductions as on threads") {
  struct Case {
    GridExtents grid;
    std::int64_t parts;
  };
  for (const auto& each : {Case{{.sample = 2}, 1}, Case{{.depth = 2}, 1}, Case{{.sample = 2, .depth = 2}, 1},
                           Case{{.depth = 3}, 2}, Case{{.sample = 2, .width = 2}, 3}}) {
    const Shape input{12, 8, 8, 8, 2};
    Small described;
    const auto d = describe(described, input, {.grid = each.grid, .dtype = dtype, .accumulate = each.parts, .optimizer = adam});
    CAPTURE(each.grid.sample);
    CAPTURE(each.grid.depth);
    CAPTURE(each.parts);
    std::atomic<std::int64_t> sent{0}, reduced{0};
    check_on_ranks(d.ranks, "a real step", [&](const Communicator& world) {
      const auto bytes = std::make_shared<Bytes>();
      const Communicator counted(std::make_shared<Counting>(world.transport().duplicate(), bytes));
      Small net;
      auto part = input;
      part[0] /= each.parts;
      net.build(part, {.dtype = dtype});
      const auto optimizer = adam(net.parameters());
      const auto grid = make_grid(counted, each.grid);
      *bytes = {};
      real_step(net, *optimizer, grid, input, each.parts);
      for (auto* largest : {&sent, &reduced}) {
        const auto mine = largest == &sent ? bytes->sent : bytes->reduced;
        for (auto seen = largest->load(); mine > seen && !largest->compare_exchange_weak(seen, mine);) {
        }
      }
    });
    CHECK(d.sent_bytes == sent);
    CHECK(d.reduced_bytes == reduced);
    // Each gradient is reduced once, for any number of parts, plus the statistics. If only space is split, everything after the
    // pooling is replicated and needs no reduction.
    if (each.grid.sample > 1) CHECK(d.reduced_bytes >= 4 * d.parameters);
    CHECK(d.reduced_bytes < 2 * 4 * d.parameters + each.parts * 4096);
  }
}
