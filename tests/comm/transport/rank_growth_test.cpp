// What a rank allocates must not grow with the number of ranks, except where a rank has one number for each of the others.

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "ops/loss/loss.h"
#include "tests/bench/allocations.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Requested {
  std::int64_t start = 0, step = 0;  // bytes
  std::int64_t parameters = 0;       // in the network's list
};

// Session, grid and network, and one training step, of a rank in the middle of the grid.
Requested requested_by(const GridExtents& extents, bool replicated = true) {
  const UseDevice dry(DeviceKind::dry);
  const int ranks = ranks_of(extents);
  const auto now = [] { return allocations_of_this_thread().requested; };
  const auto before = now();
  const Session session(dry_world(ranks / 2 + 1, ranks, nullptr));
  const auto grid = session.grid(extents);
  const std::int64_t batch = extents.sample;
  const auto inputs = input_layout(grid, {batch, 512, 512, 512, 4}), targets = split_layout(grid, {batch, 4}, {0, -1, -1, -1});
  CosmoFlow net;
  net.build(inputs, {.device = DeviceKind::dry});
  Adam adam(net, AdamAttributes{.replicated = replicated});
  const auto started = now();
  const auto tensor = [](const LayoutPtr& of) { return constant(zeros(of->box().extents()).with_layout(of)); };
  Tape tape(net);
  adam.step(tape.gradient(mse(net(tensor(inputs)), tensor(targets))));
  return {started - before, now() - started, static_cast<std::int64_t>(net.parameters().size())};
}

}  // namespace

TEST_CASE("memory of a rank: 2,048 ranks need little more than 64") {
  if (!counts_allocations())
    return skip_test("memory of a rank: 2,048 ranks need little more than 64", "a sanitizer has its own operator new");
  struct Pair {
    GridExtents few, many;
    double start, step;  // at most so many times the bytes
  };
  // The cuts of a split are one number for each block, in each layout: 128 and 2,048 blocks of samples.
  const std::vector<Pair> pairs{{{.sample = 4, .depth = 16}, {.sample = 128, .depth = 16}, 1.25, 1.25},
                                {{.depth = 4, .height = 4, .width = 4}, {.depth = 16, .height = 16, .width = 8}, 1.5, 1.5},
                                {{.sample = 64}, {.sample = 2048}, 6, 4}};
  requested_by(pairs[0].few);  // what a process allocates once
  for (const auto& [few, many, start, step] : pairs) {
    const auto a = requested_by(few), b = requested_by(many);
    CAPTURE(many.depth);
    CAPTURE(a.start);
    CAPTURE(b.start);
    CAPTURE(a.step);
    CAPTURE(b.step);
    CHECK(a.start > 0);
    CHECK(a.step > 0);
    CHECK(static_cast<double>(b.start) <= start * static_cast<double>(a.start));
    CHECK(static_cast<double>(b.step) <= step * static_cast<double>(a.step));
    // A divided optimizer has one number for each rank and parameter, and in a step some for each rank and bucket.
    const auto divided = requested_by(many, false);
    const auto numbers = static_cast<std::int64_t>(sizeof(std::int64_t)) * ranks_of(many) * b.parameters;
    CAPTURE(divided.start - b.start);
    CAPTURE(divided.step - b.step);
    CAPTURE(numbers);
    CHECK(divided.start - b.start <= 2 * numbers);
    CHECK(divided.step - b.step <= 2 * numbers);
  }
}
