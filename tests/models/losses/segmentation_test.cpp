// Losses of segmentation: compared with formulas cell by cell; values and gradients on every grid equal those of one rank.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "comm/collectives/collectives.h"
#include "framework/engine/tape.h"
#include "models/losses/segmentation.h"
#include "ops/elementwise/elementwise.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::segmentation;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t batch = 3, classes = 4;
const Shape cells{5, 4, 3};

Tensor scores() { return global_tensor({batch, cells[0], cells[1], cells[2], classes}, 1) * 3; }
// Only one sample has the last class.
Tensor labels() {
  const auto at = global_tensor({batch, cells[0], cells[1], cells[2]}, 2).to_vector();
  std::vector<double> values;
  const auto of_sample = at.size() / static_cast<std::size_t>(batch);
  for (std::size_t i = 0; i < at.size(); ++i) values.push_back(std::floor((at[i] + 1) / 2 * (i < of_sample ? 4 : 3)));
  return from_vector({batch, cells[0], cells[1], cells[2]}, values, DType::uint8);
}

// The same with -1 in every fifth cell, and in all cells of the second sample that are of class 1.
Tensor labels_with_ignored() {
  auto values = labels().to_vector();
  const auto of_sample = values.size() / static_cast<std::size_t>(batch);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % 5 == 3 || (i / of_sample == 1 && values[i] == 1)) values[i] = -1;
  return from_vector({batch, cells[0], cells[1], cells[2]}, values, DType::int32);
}

// p and t of every cell, [batch][cell][class]; t is `none` where the label is -1.
struct Cells {
  static constexpr std::size_t none = 99;
  std::vector<double> p;
  std::vector<std::size_t> label;
  explicit Cells(const Tensor& labels_of_cells = labels()) {
    const auto x = scores().to_vector(), t = labels_of_cells.to_vector();
    for (std::size_t i = 0; i < t.size(); ++i) {
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[i * classes + c]);
      for (std::size_t c = 0; c < classes; ++c) p.push_back(std::exp(x[i * classes + c]) / sum);
      label.push_back(t[i] < 0 ? none : static_cast<std::size_t>(t[i]));
    }
  }
};

// 1 - mean of (T + s) / (T + a F + b M + s)
double tversky(const Cells& at, double a, double b, const OverlapOptions& o) {
  const std::size_t groups = o.whole_batch ? 1 : batch, each = at.label.size() / groups;
  double sum = 0;
  int count = 0;
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t c = o.background ? 0 : 1; c < classes; ++c) {
      double both = 0, wrong = 0, missed = 0;
      for (std::size_t i = g * each; i < (g + 1) * each; ++i) {
        const double p = at.p[i * classes + c], t = at.label[i] == c ? 1 : 0;
        if (at.label[i] == Cells::none) continue;
        both += p * t, wrong += p * (1 - t), missed += (1 - p) * t;
      }
      sum += (both + o.smoothing) / (both + a * wrong + b * missed + o.smoothing), ++count;
    }
  return 1 - sum / count;
}

double cross_entropy_of(const Cells& at, double gamma, const std::vector<double>& weights) {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < at.label.size(); ++i) {
    if (at.label[i] == Cells::none) continue;
    const double p = at.p[i * classes + at.label[i]];
    ++count, sum -= (weights.empty() ? 1 : weights[at.label[i]]) * std::pow(1 - p, gamma) * std::log(p);
  }
  return sum / count;
}

using Loss = std::function<Tensor(const Tensor& x, const Tensor& t)>;

// The value and the gradient on one rank, in float64.
std::pair<double, Tensor> of_one(const Loss& loss, const Tensor& x, const Tensor& t) {
  Tape tape;
  const auto value = loss(x, t);
  return {value.item(), tape.gradient(value, {x})[0]};
}

void check_loss(const std::string& name, const Loss& loss, double expected, const Tensor& t = labels()) {
  const auto x = scores();
  const auto [value, gradient] = of_one(loss, x, t);
  INFO(name);
  CHECK(value == doctest::Approx(expected).epsilon(1e-12));
  CHECK(loss(cast(x, DType::float32), t).item() == doctest::Approx(expected).epsilon(1e-5));
  CHECK(loss(cast(x, DType::bfloat16), t).item() == doctest::Approx(expected).epsilon(0.02));
  // The derivative along a random direction.
  const auto direction = global_tensor(x.shape(), 3);
  const double step = 1e-6;
  double slope = 0;
  const auto g = gradient.to_vector(), d = direction.to_vector();
  for (std::size_t i = 0; i < g.size(); ++i) slope += g[i] * d[i];
  const double difference = (loss(x + direction * step, t).item() - loss(x - direction * step, t).item()) / (2 * step);
  CHECK(slope == doctest::Approx(difference).epsilon(1e-6));
  for (const auto& grid : std::vector<GridExtents>{{.depth = 2},
                                                   {.sample = 2, .height = 2},
                                                   {.depth = 2, .height = 2, .width = 2},
                                                   {.sample = 4},
                                                   {.sample = 3, .depth = 2}})
    check_on_ranks(grid.sample * grid.depth * grid.height * grid.width, name,
                   [&, whole = gradient, value = value](const Communicator& world) {
                     const auto g = make_grid(world, grid);
                     const auto mine = part_of(x, activation_layout(g, x.shape()));
                     const auto targets = part_of(t, split_layout(g, t.shape(), {0, 1, 2, 3}));
                     Tape tape;
                     const auto share = loss(mine, targets);
                     const auto found = tape.gradient(share, {mine})[0];
                     const double all = total(share, world);
                     require(std::abs(all - value) < 1e-12, "[test] {}: {} not {}", name, all, value);
                     require_close(name + ": gradient", found, part_of(whole, mine.layout()), 1e-12);
                   });
}

}  // namespace

TEST_CASE("segmentation: losses by their formulas, and on every grid") {
  const Cells at;
  for (const bool background : {true, false})
    for (const bool whole_batch : {false, true}) {
      const OverlapOptions o{.background = background, .whole_batch = whole_batch, .smoothing = 0.5};
      auto half = o;
      half.smoothing = 0.25;
      const double dice = tversky(at, 0.5, 0.5, half);
      check_loss(
          "dice", [&](const Tensor& x, const Tensor& t) { return soft_dice_loss(x, t, o); }, dice);
      check_loss(
          "dice and cross-entropy", [&](const Tensor& x, const Tensor& t) { return dice_cross_entropy_loss(x, t, o); },
          (dice + cross_entropy_of(at, 0, {})) / 2);
      const TverskyOptions uneven{.false_positives = 0.3, .false_negatives = 0.9, .overlap = o};
      check_loss(
          "Tversky", [&](const Tensor& x, const Tensor& t) { return tversky_loss(x, t, uneven); }, tversky(at, 0.3, 0.9, o));
    }
  const std::vector<double> weights{0.5, 1, 2, 4};
  check_loss(
      "focal", [](const Tensor& x, const Tensor& t) { return focal_loss(x, t); }, cross_entropy_of(at, 2, {}));
  check_loss(
      "focal, weights", [&](const Tensor& x, const Tensor& t) { return focal_loss(x, t, {.gamma = 1.5, .weights = weights}); },
      cross_entropy_of(at, 1.5, weights));
  check_loss(
      "focal, gamma 0", [](const Tensor& x, const Tensor& t) { return focal_loss(x, t, {.gamma = 0}); },
      cross_entropy_of(at, 0, {}));
}

TEST_CASE("segmentation: ignored cells count in no loss, on any grid") {
  const auto t = labels_with_ignored();
  const Cells at(t);
  std::vector<std::pair<std::string, Loss>> losses;
  const auto check = [&](const std::string& name, const Loss& loss, double expected) {
    check_loss(name, loss, expected, t);
    losses.emplace_back(name, loss);
  };
  for (const bool whole_batch : {false, true}) {
    const OverlapOptions o{.whole_batch = whole_batch, .smoothing = 0.5, .ignored = -1};
    auto half = o;
    half.smoothing = 0.25;
    const double dice = tversky(at, 0.5, 0.5, half);
    check(
        "dice", [=](const Tensor& x, const Tensor& y) { return soft_dice_loss(x, y, o); }, dice);
    check(
        "dice and cross-entropy", [=](const Tensor& x, const Tensor& y) { return dice_cross_entropy_loss(x, y, o); },
        (dice + cross_entropy_of(at, 0, {})) / 2);
    const TverskyOptions uneven{.false_positives = 0.3, .false_negatives = 0.9, .overlap = o};
    check(
        "Tversky", [=](const Tensor& x, const Tensor& y) { return tversky_loss(x, y, uneven); }, tversky(at, 0.3, 0.9, o));
  }
  check(
      "focal", [](const Tensor& x, const Tensor& y) { return focal_loss(x, y, {.ignored = -1}); }, cross_entropy_of(at, 2, {}));
  check(
      "focal, gamma 0", [](const Tensor& x, const Tensor& y) { return focal_loss(x, y, {.gamma = 0, .ignored = -1}); },
      cross_entropy_of(at, 0, {}));
  // Nothing depends on the scores of ignored cells; a batch of ignored cells only is worth nothing.
  const auto nothing = from_vector(t.shape(), std::vector<double>(static_cast<std::size_t>(t.elements()), -1), DType::int32);
  for (const auto& [name, loss] : losses) {
    INFO(name);
    const auto gradient = of_one(loss, scores(), t).second.to_vector();
    for (std::size_t i = 0; i < gradient.size(); ++i)
      if (at.label[i / classes] == Cells::none) CHECK(gradient[i] == 0);
    const auto [value, none] = of_one(loss, scores(), nothing);
    CHECK(value == doctest::Approx(0).scale(1));
    CHECK(none.to_vector() == std::vector<double>(gradient.size()));
  }
}

TEST_CASE("segmentation: the loss of regions by its formula, and on every grid") {
  const std::vector<std::vector<std::int64_t>> regions{{1, 2, 3}, {2, 3}, {1}};
  for (const bool ignores : {false, true})
    for (const bool whole_batch : {false, true}) {
      const auto t = ignores ? labels_with_ignored() : labels();
      RegionOptions o{.regions = regions, .classes = classes, .overlap = {.whole_batch = whole_batch, .smoothing = 0.5}};
      if (ignores) o.overlap.ignored = -1;
      const auto x = scores().to_vector(), label = t.to_vector();
      const std::size_t groups = whole_batch ? 1 : batch, each = label.size() / groups;
      double ratios = 0, entropy = 0, count = 0;
      for (std::size_t r = 0; r < regions.size(); ++r)
        for (std::size_t g = 0; g < groups; ++g) {
          double both = 0, sums = 0;
          for (std::size_t i = g * each; i < (g + 1) * each; ++i) {
            if (label[i] < 0) continue;
            const double p = 1 / (1 + std::exp(-x[i * classes + r]));
            const bool there = std::count(regions[r].begin(), regions[r].end(), static_cast<std::int64_t>(label[i])) > 0;
            both += there ? p : 0, sums += p + (there ? 1 : 0), count += 1;
            entropy -= std::log(there ? p : 1 - p);
          }
          ratios += (2 * both + 0.5) / (sums + 0.5);
        }
      const double expected = (1 - ratios / static_cast<double>(regions.size() * groups) + entropy / count) / 2;
      check_loss(
          "regions", [&](const Tensor& s, const Tensor& y) { return region_loss(slice(s, 4, 0, 3), y, o); }, expected, t);
    }
  CHECK(error_text([&] {
          region_loss(scores(), labels(), {.regions = regions, .classes = 4});
        }).starts_with("[region_loss] needs scores [N, D, H, W, 3] of 3 regions"));
  CHECK(error_text([&] { region_loss(slice(scores(), 4, 0, 1), labels(), {.regions = {{4}}, .classes = 4}); }) ==
        "[region_loss] a region has the class 4 of 4");
}

TEST_CASE("segmentation: an absent class that nobody predicts is found; what does not fit is refused") {
  const auto sure = one_hot(labels(), classes, DType::float64) * 1000;
  CHECK(soft_dice_loss(sure, labels()).item() == doctest::Approx(0));
  CHECK(focal_loss(sure, labels()).item() == 0);
  const auto text = [](const auto& f) { return error_text(f); };
  CHECK(text([&] { soft_dice_loss(scores(), scores()); }).starts_with("[soft_dice_loss] needs scores [N, D, H, W, C]"));
  CHECK(text([&] {
          soft_dice_loss(scores(), slice(labels(), 1, 0, 2));
        }).starts_with("[soft_dice_loss] labels are for other cells"));
  CHECK(text([&] { focal_loss(scores(), labels(), {.weights = {1}}); }) == "[focal_loss] 1 weights for 4 classes");
  CHECK(text([&] {
          tversky_loss(scores(), labels(), {.false_positives = -1});
        }).starts_with("[tversky_loss] weights are not negative"));
  // A label beyond the number of classes is an error and does not count as another class.
  CHECK(!text([&] { soft_dice_loss(slice(scores(), 4, 0, 2), labels()); }).empty());
}
