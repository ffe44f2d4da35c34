// Recipes for windows of volumes with labels: every grid sees the same bits, images and labels move together, and turns and
// mirrors are exact.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "comm/distributed/redistribute.h"
#include "models/data/augment/intensity.h"
#include "models/data/data.h"
#include "models/data/volumes/label_rules.h"
#include "tests/models/data/scans.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Volumes of two channels: the label of a cell, and a smooth function of its place. Labels are 1 in a ball, 2 in a slab, -1
// (ignored) in a corner, else 0.
class Balls : public data::Source {
 public:
  explicit Balls(const Shape& extents) {
    type_.extents = extents, type_.channels = 2;
    type_.targets = {.type = DType::int32, .shape = {}, .per_cell = true};
  }
  std::int64_t size() const override { return 3; }
  const data::SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    auto* to = reinterpret_cast<float*>(out);
    cells(box, [&](double d, double h, double w) {
      *to++ = static_cast<float>(label(sample, d, h, w));
      *to++ = static_cast<float>(std::sin(0.3 * d) + std::cos(0.2 * h) * std::sin(0.25 * w) + 0.1 * static_cast<double>(sample));
    });
  }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    auto* to = reinterpret_cast<std::int32_t*>(out);
    cells(box, [&](double d, double h, double w) { *to++ = label(sample, d, h, w); });
  }

 private:
  std::int32_t label(std::int64_t sample, double d, double h, double w) const {
    const auto& n = type_.extents;
    if (d < 3 && h < 3 && w < 3) return data::ignored_label;
    const double r = std::hypot(d - 0.5 * static_cast<double>(n[0] - 1), h - 0.5 * static_cast<double>(n[1] - 1),
                                w - 0.5 * static_cast<double>(n[2] - 1));
    return r < 3 + static_cast<double>(sample) ? 1 : h > 0.7 * static_cast<double>(n[1]) ? 2 : 0;
  }
  template <class F>
  static void cells(const Box& box, F f) {
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          f(static_cast<double>(d), static_cast<double>(h), static_cast<double>(w));
  }
  data::SampleType type_;
};

struct Batches {
  std::vector<double> x, y;
  bool operator==(const Batches&) const = default;
};
Batches batches(const data::SourcePtr& source, const GridExtents& g, const data::LoaderOptions& options,
                std::int64_t epochs = 2) {
  Batches result;
  run_threads(g.sample * g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), g);
    const data::Loader loader(source, mine);
    for (std::int64_t e = 0; e < epochs; ++e)
      for (const auto& [x, y] : loader.epoch(e)) {
        const auto vx = gather_all(x).to_vector(), vy = gather_all(y).to_vector();
        if (transport->rank() != 0) continue;
        result.x.insert(result.x.end(), vx.begin(), vx.end()), result.y.insert(result.y.end(), vy.begin(), vy.end());
      }
  });
  return result;
}

data::LoaderOptions windows(const Shape& window, const std::string& recipe) {
  data::LoaderOptions options{.batch = 1, .seed = 9, .crop = data::Crop{.extents = window}};
  if (!recipe.empty()) options.augment = augment::parse_recipe(recipe, {});
  return options;
}

// All steps, each of them in every window.
constexpr const char* every_step =
    "rotate:p=1,scale:p=1,elastic:amplitude=1.5:spacing=4:p=1,cubic,scores,noise:p=1,blur:p=1,brightness:p=1,contrast:p=1,"
    "resolution:p=1,gamma:inverted=1:p=1,gamma:p=1,flip:axis=0,flip:axis=1,flip:axis=2";

augment::Part part_of(augment::Sample sample) { return augment::whole_part(std::move(sample)); }

}  // namespace

TEST_CASE("window recipes: every grid sees the same bits") {
  const auto balls = std::make_shared<Balls>(Shape{14, 16, 13});
  const auto scans = std::make_shared<Scans>();
  for (const char* recipe : {every_step, "nnunet", "rotate:p=1:degrees=170,gamma:p=1"})
    for (const data::SourcePtr& source : {data::SourcePtr(balls), data::SourcePtr(scans)}) {
      const auto options = windows({12, 10, 12}, recipe);
      const auto expected = batches(source, {}, options);
      CHECK(!std::equal(expected.x.begin(), expected.x.begin() + static_cast<std::ptrdiff_t>(expected.x.size() / 2),
                        expected.x.begin() + static_cast<std::ptrdiff_t>(expected.x.size() / 2)));  // epochs differ
      for (const GridExtents& g : {GridExtents{.depth = 2}, {.height = 2}, {.depth = 2, .width = 2}, {.depth = 4}})
        CHECK(batches(source, g, options) == expected);
      auto kept = options;
      kept.store_bytes = 1 << 20, kept.ghosts = 1;
      if (source == balls) CHECK(batches(source, {}, kept) == expected);
    }
}

TEST_CASE("window recipes: a resumed epoch goes on in the same stream, another seed is another stream") {
  const auto source = std::make_shared<Balls>(Shape{10, 10, 10});
  auto options = windows({8, 8, 8}, every_step);
  const data::Loader whole(source, options), again(source, options);
  options.seed = 10;
  const data::Loader other(source, options);
  std::vector<std::vector<double>> all, rest;
  for (const auto& batch : whole.epoch(1)) all.push_back(batch.x.to_vector());
  for (const auto& batch : again.epoch(1, 2)) rest.push_back(batch.x.to_vector());
  REQUIRE(rest.size() == 1);
  CHECK(rest[0] == all[2]);
  CHECK(other.batch(1, 2).x.to_vector() != all[2]);
}

TEST_CASE("window recipes: mirrors and quarter turns are exact") {
  const Shape window{9, 9, 9};
  const auto source = std::make_shared<Balls>(window);
  const auto plain = batches(source, {}, windows(window, ""), 1);
  const auto at = [](std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w) {
    return static_cast<std::size_t>(((n * 9 + d) * 9 + h) * 9 + w);
  };
  const auto mirrored = batches(source, {}, windows(window, "flip:axis=1:p=1"), 1);
  // A recipe of one step that turns by 90 degrees from W to H.
  auto options = windows(window, "");
  augment::Step turn{.text = "turn", .apply = [](augment::Sample&, const Philox&) {}};
  turn.move = [](data::Motion& motion, const Philox&) { motion.matrix = {{{1, 0, 0}, {0, 0, -1}, {0, 1, 0}}}; };
  options.augment.add(turn);
  const auto turned = batches(source, {}, options, 1);
  augment::Sample first({9, 9, 9}, 2);
  for (std::size_t i = 0; i < first.values.size(); ++i) first.values[i] = static_cast<float>(plain.x[i]);
  const auto expected = augment::turned(first, 3, 1, 2);
  CHECK(expected.values != first.values);
  for (std::size_t i = 0; i < first.values.size(); ++i) REQUIRE(turned.x[i] == static_cast<double>(expected.values[i]));
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t d = 0; d < 9; ++d)
      for (std::int64_t h = 0; h < 9; ++h)
        for (std::int64_t w = 0; w < 9; ++w) {
          REQUIRE(mirrored.y[at(n, d, h, w)] == plain.y[at(n, d, 8 - h, w)]);
          REQUIRE(mirrored.x[2 * at(n, d, h, w) + 1] == plain.x[2 * at(n, d, 8 - h, w) + 1]);
          REQUIRE(turned.y[at(n, d, h, w)] == turned.x[2 * at(n, d, h, w)]);  // labels turn with the image
        }
}

TEST_CASE("window recipes: images and labels move together, and ignored cells stay whole") {
  const auto source = std::make_shared<Balls>(Shape{16, 16, 16});
  const auto moved = batches(source, {}, windows({14, 14, 14}, "rotate:p=1,scale:p=1,elastic:p=1:amplitude=2:spacing=6"));
  const auto scored = batches(source, {}, windows({14, 14, 14}, "rotate:p=1,scale:p=1,elastic:p=1:amplitude=2:spacing=6,scores"));
  CHECK(moved.x == scored.x);
  std::set<double> labels(scored.y.begin(), scored.y.end());
  CHECK(labels == std::set<double>{-1, 0, 1, 2});
  std::size_t near = 0, off = 0, apart = 0;
  for (std::size_t i = 0; i < moved.y.size(); ++i) {
    // The nearest label has a linear weight of at least 1/8; a cell inside one label has its value.
    const double value = moved.x[2 * i];
    REQUIRE(value >= -1);
    REQUIRE(value <= 2 + 1e-6);
    near += std::abs(value - moved.y[i])<0.5, off += std::abs(value - moved.y[i])> 2.625 + 1e-5;
    apart += moved.y[i] != scored.y[i];
  }
  CHECK(off == 0);
  CHECK(near > moved.y.size() * 85 / 100);
  CHECK(apart > 0);
  CHECK(apart < moved.y.size() / 20);
}

TEST_CASE("window recipes: a picture stays in its plane") {
  const auto source = std::make_shared<Balls>(Shape{1, 20, 20});
  const auto options = windows({1, 16, 16}, every_step);
  const auto expected = batches(source, {}, options);
  CHECK(std::count(expected.y.begin(), expected.y.end(), 1.0) > 20);
  CHECK(batches(source, {.height = 2, .width = 2}, options) == expected);
}

TEST_CASE("window recipes: elastic displacements are smooth and bounded") {
  data::Motion motion{.window = {24, 24, 24}};
  motion.elastic = data::Elastic{.amplitude = 3, .spacing = 8}, motion.random = {4, 2};
  // A volume of places shows where cells come from.
  const Shape sample{40, 40, 40};
  const data::Deformation deformation(motion, {}, {8, 8, 8}, sample);
  const Box block{Shape{0, 0, 0}, motion.window};
  const auto box = deformation.needed(block);
  const auto extents = box.extents();
  std::vector<float> places, result(static_cast<std::size_t>(3 * motion.window.elements()));
  for (auto d = box.begin[0]; d < box.end[0]; ++d)
    for (auto h = box.begin[1]; h < box.end[1]; ++h)
      for (auto w = box.begin[2]; w < box.end[2]; ++w)
        for (const auto place : {d, h, w}) places.push_back(static_cast<float>(place));
  REQUIRE(static_cast<std::int64_t>(places.size()) == 3 * extents.elements());
  deformation.values(block, 3, places.data(), result.data());
  double furthest = 0, steepest = 0;
  std::vector<std::array<double, 3>> moves;
  for (std::int64_t i = 0; i < motion.window.elements(); ++i) {
    const std::array<std::int64_t, 3> cell{i / 576, i / 24 % 24, i % 24};
    auto& move = moves.emplace_back();
    for (std::size_t a = 0; a < 3; ++a) {
      move[a] = static_cast<double>(result[static_cast<std::size_t>(3 * i) + a]) - static_cast<double>(cell[a] + 8);
      furthest = std::max(furthest, std::abs(move[a]));
      if (cell[2] > 0) steepest = std::max(steepest, std::abs(move[a] - moves[moves.size() - 2][a]));
    }
  }
  CHECK(furthest > 1);
  CHECK(furthest <= 3 + 1e-4);
  // The derivative of a cubic B-spline between points of at most `amplitude` is at most 2 amplitude / spacing.
  CHECK(steepest <= 2.0 * 3 / 8 + 1e-3);
}

TEST_CASE("window recipes: values change as the steps say") {
  augment::Sample sample({8, 9, 10}, 2);
  for (std::size_t i = 0; i < sample.values.size(); ++i) sample.values[i] = static_cast<float>(Philox{3, 1}.normal(i));
  const auto plain = part_of(sample);
  const auto changed = [&](auto change) {
    auto part = plain;
    change(part);
    return part;
  };
  const auto noisy = changed([](augment::Part& x) { augment::noise(x, 0.5, {1, 1}); });
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < sample.values.size(); ++i) {
    const double n = static_cast<double>(noisy.values.values[i] - sample.values[i]);
    sum += n, squares += n * n;
  }
  const auto count = static_cast<double>(sample.values.size());
  CHECK(std::abs(sum / count) < 4 * 0.5 / std::sqrt(count));
  CHECK(std::sqrt(squares / count) == doctest::Approx(0.5).epsilon(0.08));

  const auto& tones = plain.tones[1];
  const auto contrasted = changed([](augment::Part& x) { augment::contrast(x, 1, 1.5); });
  const auto bent = changed([](augment::Part& x) { augment::gamma(x, 1, 1.4, false); });
  const auto inverted = changed([](augment::Part& x) { augment::gamma(x, 1, 1.4, true); });
  const auto bright = changed([](augment::Part& x) { augment::brighten(x, 1, 1.2); });
  double mean = 0, deviation = 0;
  for (std::size_t i = 1; i < sample.values.size(); i += 2) {
    const auto v = static_cast<double>(sample.values[i]), m = tones.mean();
    CHECK(contrasted.values.values[i - 1] == sample.values[i - 1]);  // the other channel
    REQUIRE(static_cast<double>(contrasted.values.values[i]) ==
            doctest::Approx(std::clamp(1.5 * (v - m) + m, static_cast<double>(tones.least), static_cast<double>(tones.greatest)))
                .epsilon(1e-4));
    REQUIRE(static_cast<double>(bright.values.values[i]) == doctest::Approx(1.2 * v).epsilon(1e-5));
    mean += 2 * static_cast<double>(bent.values.values[i]) / count;
  }
  for (std::size_t i = 1; i < sample.values.size(); i += 2)
    deviation += 2 * std::pow(static_cast<double>(bent.values.values[i]) - mean, 2) / count;
  CHECK(mean == doctest::Approx(tones.mean()).epsilon(1e-3));
  CHECK(std::sqrt(deviation) == doctest::Approx(tones.deviation()).epsilon(1e-3));
  // Inverting gamma bends the other end: gamma of -x, negated.
  auto negative = plain;
  for (auto& v : negative.values.values) v = -v;
  auto other = part_of(negative.values);
  augment::gamma(other, 1, 1.4, false);
  for (std::size_t i = 1; i < sample.values.size(); i += 2)
    REQUIRE(static_cast<double>(inverted.values.values[i]) ==
            doctest::Approx(-static_cast<double>(other.values.values[i])).epsilon(1e-3));
  // A factor of 1 changes nothing; a constant stays, whatever the factor.
  const auto same = changed([](augment::Part& x) { augment::low_resolution(x, 0, 1); });
  CHECK(same.values.values == sample.values);
  auto flat = plain;
  std::fill(flat.values.values.begin(), flat.values.values.end(), 2.0F);
  augment::low_resolution(flat, 0, 1.7), augment::blur(flat, 1, 1.2);
  for (const float v : flat.values.values) REQUIRE(static_cast<double>(v) == doctest::Approx(2).epsilon(1e-5));
}

TEST_CASE("resampling: cubic B-splines have the values of scipy.ndimage.zoom") {
  augment::Sample sample({3, 4, 5}, 1);
  for (std::size_t i = 0; i < sample.values.size(); ++i) sample.values[i] = static_cast<float>((i * 37 + 11) % 101) / 10;
  const auto finer = augment::resized(sample, augment::whole(sample.extents), {5, 6, 8}, augment::Filter::cubic);
  // scipy 1.x: zoom(x, (5/3, 6/4, 8/5), order=3, mode="nearest", grid_mode=True), every 17th value
  const std::vector<double> expected{-0.0423689901, 6.53046116, 5.48048817, 6.82930679, 3.53125379,
                                     5.72615716,    8.12589676, 7.32011144, 10.7944239, 6.60773237,
                                     7.62196186,    8.71911739, 6.57300645, 5.59046478, 5.07560504};
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(static_cast<double>(finer.values[17 * i]) == doctest::Approx(expected[i]).epsilon(2e-6));
  // Axes that keep their cells keep their values, axes that lose cells have the mean.
  CHECK(augment::resized(sample, augment::whole(sample.extents), {3, 4, 5}, augment::Filter::cubic).values == sample.values);
  CHECK(augment::resized(sample, augment::whole(sample.extents), {3, 2, 5}, augment::Filter::cubic).values ==
        augment::resized(sample, augment::whole(sample.extents), {3, 2, 5}, augment::Filter::area).values);
}

TEST_CASE("window recipes: what cannot be is refused") {
  CHECK(has(error_text([&] { augment::parse_recipe("turn", {}).require_windows(); }), "no step for windows"));
  CHECK(has(error_text([&] { (void)augment::parse_recipe("flip,crop", {}); }), "'crop' is no step for windows"));
  CHECK(has(error_text([&] { augment::parse_recipe("elastic,elastic", {}).require_windows(); }), "one elastic"));
  CHECK(has(error_text([&] { (void)augment::parse_recipe("gamma:low=0", {}); }), "exponent"));
  CHECK(has(error_text([&] { (void)augment::parse_recipe("rotate:axis=3", {}); }), "axes are 0"));
}
