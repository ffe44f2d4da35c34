// Plans of segmentation trainings: the rules against nnU-Net's planner, memory, and what fits nowhere.

#include <doctest/doctest.h>

#include "models/trainer/segmentation/parts.h"
#include "tests/bench/plans/data_sets.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::trainer;
using namespace mpigrad::trainer::segmenting;
using namespace mpigrad::testing;

namespace {

Fingerprint volumes(std::int64_t count, const Shape& extents, const Spacing& spacing) {
  Fingerprint f;
  f.extents.assign(static_cast<std::size_t>(count), extents), f.spacings.assign(static_cast<std::size_t>(count), spacing);
  return f;
}

// Bytes in proportion to cells.
PlanRules cells_at_most(std::int64_t cells) {
  return {.bytes = [](const Shape& window, const NetworkPlan&, std::int64_t batch) { return window.elements() * batch; },
          .most_bytes = cells};
}

}  // namespace

TEST_CASE("plan: spacing, window and levels are those of nnU-Net's planner for its own measure of memory") {
  const auto theirs = json_of_plans("nnunet_plans.json");
  for (const auto& [name, fingerprint] : described_data_sets()) {
    INFO(name);
    const auto& expected = theirs.at(name);
    const auto plan = plan_of(fingerprint, rules_of_nnunet(fingerprint.classes));
    for (std::size_t a = 0; a < 3; ++a) {
      CHECK(plan.spacing[a] == doctest::Approx(expected.at("spacing").at(a).get<double>()).epsilon(1e-4));
      CHECK(plan.median[a] == expected.at("median").at(a).get<double>());
      CHECK(plan.window[static_cast<int>(a)] == expected.at("window").at(a).get<std::int64_t>());
      int pools = 0;
      for (const auto& stride : plan.network.strides) pools += stride[a] == 2;
      CHECK(pools == expected.at("pools").at(a).get<int>());
      int flat = 0;
      for (const auto& kernel : plan.network.kernels) flat += kernel[a] == 1;
      CHECK(flat == expected.at("flat").at(a).get<int>());
    }
    CHECK(plan.network.strides.size() == expected.at("levels").get<std::size_t>());
    // nnU-Net rounds to the nearest batch; the one here fits.
    const auto batch = expected.at("batch").get<std::int64_t>();
    CHECK((plan.batch == batch || plan.batch == batch - 1));
  }
}

TEST_CASE("plan: kernels are 1 along a coarse axis until the others are as coarse") {
  const auto levels = levels_of({5, 1, 1}, {16, 128, 128});
  const std::vector<Triple> strides{1, {1, 2, 2}, {1, 2, 2}, {2, 2, 2}, {2, 2, 2}, {1, 2, 2}};
  const std::vector<Triple> kernels{{1, 3, 3}, {1, 3, 3}, {3, 3, 3}, {3, 3, 3}, {3, 3, 3}, {3, 3, 3}};
  CHECK(levels.strides == strides);
  CHECK(levels.kernels == kernels);
  CHECK(levels.divisor == Triple{4, 32, 32});
  CHECK(levels_of({1, 1, 1}, {7, 7, 7}).strides.size() == 1);
  // One axis that could be halved is halved only if it has 12 cells.
  CHECK(levels_of({1, 1, 1}, {11, 4, 4}).strides.size() == 1);
  CHECK(levels_of({1, 1, 1}, {12, 4, 4}).strides == std::vector<Triple>{1, {2, 1, 1}});
}

TEST_CASE("plan: the coarse axis of anisotropic volumes gets the finer of its spacings, but none finer than the others") {
  auto f = volumes(10, {12, 200, 200}, {9, 1, 1});
  CHECK(target_spacing(f) == Spacing{9, 1, 1});
  f.spacings[0] = f.spacings[1] = {4, 1, 1};
  CHECK(target_spacing(f)[0] == doctest::Approx(4));
  f.spacings[0] = f.spacings[1] = {0.5, 1, 1};
  CHECK(target_spacing(f) == Spacing{1, 1, 1});
  f.extents.assign(10, {90, 200, 200});  // as many cells as the others within a factor of three: the median
  CHECK(target_spacing(f) == Spacing{9, 1, 1});
}

TEST_CASE("plan: window and batch fit into the memory, the batch covers at most 5 % of the cells") {
  const auto f = volumes(100, {64, 64, 64}, {1, 1, 1});
  auto plan = plan_of(f, cells_at_most(2 * 64 * 64 * 64));
  CHECK(plan.window == Shape{64, 64, 64});
  CHECK(plan.batch == 2);
  CHECK_FALSE(plan.batch_dice);
  CHECK(plan.network.filters == std::vector<std::int64_t>{32, 64, 128, 256, 320});
  plan = plan_of(f, cells_at_most(100 * 64 * 64 * 64));
  CHECK(plan.batch == 5);
  plan = plan_of(f, cells_at_most(100000));
  CHECK(plan.window.elements() * 2 <= 100000);
  CHECK(plan.window.elements() * plan.batch == plan.bytes);
  CHECK(plan.batch_dice);
  auto rules = cells_at_most(1000000);
  rules.least_batch = 3, rules.batch_step = 3, rules.filters = 8;
  plan = plan_of(f, rules);
  CHECK(plan.batch == 3);
  CHECK(plan.network.filters.front() == 8);
  CHECK(plan.network.filters.back() == 128);
  rules = cells_at_most(1 << 30);
  rules.window = Shape{16, 16, 16}, rules.batch = 7, rules.spacing = Spacing{2, 2, 2};
  plan = plan_of(f, rules);
  CHECK(plan.window == Shape{16, 16, 16});
  CHECK(plan.batch == 7);
  CHECK(plan.median[0] == 32);
}

TEST_CASE("plan: what fits nowhere is refused with numbers") {
  const auto f = volumes(10, {64, 64, 64}, {1, 1, 1});
  CHECK(has(error_text([&] { (void)plan_of(f, cells_at_most(100)); }), "does not fit: a training step needs"));
  auto rules = cells_at_most(100);
  rules.window = Shape{32, 32, 32};
  CHECK(has(error_text([&] { (void)plan_of(f, rules); }), "a batch of 2 windows of [32, 32, 32] does not fit"));
  CHECK(has(error_text([&] {
              (void)plan_of(volumes(9, {6, 6, 6}, {1, 1, 1}), cells_at_most(1 << 30));
            }),
            "too small for two levels"));
  CHECK(bytes_of_text("8GiB") == std::int64_t{8} << 30);
  CHECK(bytes_of_text("1.5 MB") == 1500000);
  for (const char* text : {"", "8", "GiB", "-1GiB", "8 gib", "1e30TiB"}) CHECK(bytes_of_text(text) == 0);
}
