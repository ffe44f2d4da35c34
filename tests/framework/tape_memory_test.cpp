// Memory of tapes: the operands that entries keep, memory during the replay, and recompute(), which keeps nothing inside.

#include <doctest/doctest.h>

#include <cstdint>

#include "framework/engine/tape.h"
#include "framework/tensor/storage.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/framework/float64_vector.h"
#include "tests/support/gradient_check.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::int64_t live_bytes() { return memory_statistics(DeviceKind::cpu).current_bytes; }
std::int64_t peak_bytes() { return memory_statistics(DeviceKind::cpu).peak_bytes; }

}  // namespace

TEST_CASE("tape: an entry keeps what its vjp reads and nothing else") {
  const auto x = vector64({2, 3});
  Tape tape;
  const auto a = x + x, b = a * x, c = exp(b);
  const auto& entries = tape.entries();
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].name == "add");
  CHECK(entries[0].inputs[0].storage() == nullptr);
  CHECK(entries[0].outputs[0].storage() == nullptr);
  CHECK(entries[0].outputs[0].id() == a.id());
  CHECK(entries[1].inputs[0].storage() == a.storage());
  CHECK(entries[1].outputs[0].storage() == nullptr);
  CHECK(entries[2].inputs[0].storage() == nullptr);
  CHECK(entries[2].outputs[0].storage() == c.storage());
  CHECK_THROWS_WITH_AS(entries[0].inputs[0].data<double>(), "[tensor] the elements of this tensor were not kept: float64 [2]",
                       Error);
  CHECK_THROWS_WITH_AS(exp(entries[0].inputs[0]), "[exp] an operand's elements were not kept: float64 [2]", Error);
}

TEST_CASE("tape: memory is freed while the replay goes") {
  constexpr std::int64_t n = 1 << 17, mega = n * 8;
  const auto x = full({n}, 0.1, f64);
  const auto base = live_bytes();
  Tensor gradient;
  {
    Tape tape;
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = exp(y * 0.1);
    const auto objective = sum(y);
    y = {};
    CHECK(live_bytes() - base < 21 * mega);  // the products are not kept
    reset_peak_memory(DeviceKind::cpu);
    gradient = tape.gradient(objective, {x})[0];
    CHECK(peak_bytes() - base < 24 * mega);
    CHECK(tape.entries().empty());
    CHECK(live_bytes() - base < 2 * mega);
  }
  CHECK(live_bytes() - base == gradient.bytes());
}

TEST_CASE("recompute: nothing inside is kept, values and gradients are the same") {
  constexpr std::int64_t n = 1 << 17, mega = n * 8;
  const auto x = full({n}, 0.1, f64), p = full({n}, 0.3, f64);
  const auto block = [p](const Tensor& z) {
    Tensor y = z;
    for (int i = 0; i < 8; ++i) y = exp(y * p);
    return y;
  };
  const auto run = [&](bool saves, std::int64_t& peak) {
    reset_peak_memory(DeviceKind::cpu);
    const auto base = live_bytes();
    Tape tape;
    Tensor y = x;
    for (int i = 0; i < 4; ++i) y = saves ? recompute(block, y) : block(y);
    const auto objective = sum(y);
    y = {};
    auto g = tape.gradient(objective, {x, p});
    peak = peak_bytes() - base;
    return g;
  };
  std::int64_t all = 0, few = 0;
  const auto expected = run(false, all), found = run(true, few);
  CHECK(largest_difference(found[0], expected[0]) == 0);
  CHECK(largest_difference(found[1], expected[1]) < 1e-13);
  CHECK(all > 32 * mega);
  CHECK(few < all / 2);
}

TEST_CASE("recompute: dropout inside gives the same numbers the second time") {
  const auto x = random_normal({64}, {.key = 5}, 0, 1, f64);
  const auto f = [](const Tensor& z) { return dropout(square(z), 0.5, {.key = 8}); };
  Tensors results;
  for (const bool saves : {false, true}) {
    Tape tape;
    results.push_back(tape.gradient(sum(saves ? recompute(f, x) : f(x)), {x})[0]);
  }
  CHECK(largest_difference(results[0], results[1]) == 0);
}
