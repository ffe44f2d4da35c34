// Augmentations: settings that change nothing, values calculated by hand, and random numbers that are functions of their keys.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "models/data/augment/intensity.h"
#include "models/data/augment/recipe.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::augment;
using namespace mpigrad::testing;

namespace {

Sample noise_of(const Shape& extents, std::int64_t channels, std::uint64_t seed = 3) {
  Sample x(extents, channels);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(Philox{seed, 1}.uniform(i));
  return x;
}

Sample counting(const Shape& extents, std::int64_t channels = 1) {
  Sample x(extents, channels);
  std::iota(x.values.begin(), x.values.end(), 0.0F);
  return x;
}

using Values = std::vector<float>;

void check_close(const Values& a, const Values& b, double tolerance = 1e-6) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(static_cast<double>(a[i]) == doctest::Approx(b[i]).epsilon(tolerance));
}

}  // namespace

TEST_CASE("augment: what changes nothing gives the input exactly") {
  for (const auto& extents : {Shape{1, 7, 5}, Shape{4, 5, 6}}) {
    for (const std::int64_t channels : {1, 3}) {
      const auto x = noise_of(extents, channels);
      for (const auto filter : {Filter::linear, Filter::area})
        CHECK(resized(x, whole(extents), extents, filter).values == x.values);
      for (const auto fit : {Fit::cover, Fit::pad}) CHECK(fitted(x, extents, fit).values == x.values);
      CHECK(permuted(x, {}).values == x.values);
      CHECK(turned(turned(x, 1, 1, 2), 3, 1, 2).values == x.values);
      if (extents[0] == 1) CHECK(warped(x, {}, {}, extents).values == x.values);
      auto y = x;
      brightness(y, 1), contrast(y, 1), saturation(y, 1), hue(y, 0), linear(y, 1, 0), gamma(y, 1), blur(y, 0), noise(y, 0, {});
      normalise(y, std::vector<double>{0}, std::vector<double>{1});
      erase(y, {Shape{0, 0, 0}, Shape{0, 0, 0}}, 9);
      check_close(y.values, x.values);
    }
  }
}

TEST_CASE("augment: recipes from words") {
  const Shape to{1, 6, 6};
  auto flip = random_flip(1);
  flip.probability = 0.25;
  const Recipe made{random_resized_crop({.to = to, .area = {0.5, 1}}), flip, with(0.5, random_blur({0.1, 1}))};
  CHECK(parse_recipe("crop:area=0.5,flip:axis=1:p=0.25,blur:high=1", to).text() == made.text());
  CHECK(parse_recipe("handwriting", to).text() == handwriting(to).text());
  for (const auto& wrong : {std::pair{"fold", "no step 'fold'"},
                            {"warp:angle=3", "no number 'angle'"},
                            {"warp:shear=3:shear=4", "'shear' is given twice"},
                            {"erase:p=-1", "is a probability"},
                            {"flip:axis=1.5", "is an integer"},
                            {"blur:low", "is not KEY=NUMBER"}}) {
    CAPTURE(wrong.first);
    CHECK(has(error_text([&] { parse_recipe(wrong.first, to); }), wrong.second));
  }
}

TEST_CASE("augment: bilinear values by hand") {
  // Two cells to four: coordinates -1/4, 1/4, 3/4, 5/4, clamped to the volume.
  Sample x({1, 1, 2}, 1);
  x.values = {0, 4};
  CHECK(resized(x, whole(x.extents), {1, 1, 4}, Filter::linear).values == Values{0, 1, 3, 4});
  // The middle two of four cells as four: 1 + (i + 1/2) / 2 - 1/2 = 3/4, 5/4, 7/4, 9/4, clamped to [1, 2].
  Sample row({1, 1, 4}, 1);
  row.values = {10, 20, 40, 80};
  CHECK(resized(row, {{0, 0, 1}, {1, 1, 3}}, {1, 1, 4}, Filter::linear).values == Values{20, 25, 35, 40});
  // Area: means of 1.5 cells.
  Sample three({1, 3, 1}, 1);
  three.values = {3, 6, 12};
  check_close(resized(three, whole(three.extents), {1, 2, 1}, Filter::area).values, {4, 10});
  // Trilinear: the centre of a cube is the mean of its corners.
  Sample cube({2, 2, 2}, 1);
  cube.values = {0, 1, 2, 3, 4, 5, 6, 15};
  CHECK(resized(cube, whole(cube.extents), {1, 1, 1}, Filter::linear).values == Values{4.5});
  CHECK(has(error_text([&] { resized(cube, {{0, 0, 0}, {3, 2, 2}}, {1, 1, 1}, Filter::linear); }), "not inside 2 cells"));

  // Half a pixel to the right: each pixel is the mean of itself and its left neighbour, zero outside.
  const auto moved = warped(row, {.move_x = 0.125}, {}, row.extents);
  CHECK(moved.values == Values{5, 15, 30, 60});
  // Twice as large about the middle: coordinates 3/4, 5/4, 7/4, 9/4.
  CHECK(warped(row, {.scale_x = 2}, {}, row.extents).values == Values{17.5, 25, 35, 50});
  // A shear of 45 degrees moves rows by their distance from the middle.
  const auto square = counting({1, 3, 3});
  check_close(warped(square, {.shear = 45}, {}, square.extents).values, {1, 2, 0, 3, 4, 5, 0, 6, 7});
  // A quarter turn clockwise on the screen.
  check_close(warped(square, {.rotation = 90}, {}, square.extents).values, {6, 3, 0, 7, 4, 1, 8, 5, 2}, 1e-5);
  // The whole of a picture at half the extents.
  CHECK(warped(row, {}, {}, {1, 1, 2}).values == Values{15, 60});
}

TEST_CASE("augment: flips and turns move cells exactly") {
  const auto x = counting({1, 2, 3});
  CHECK(flipped(x, 2).values == Values{2, 1, 0, 5, 4, 3});
  CHECK(flipped(x, 1).values == Values{3, 4, 5, 0, 1, 2});
  const auto once = turned(x, 1, 1, 2);  // numpy.rot90([[0, 1, 2], [3, 4, 5]])
  CHECK(once.extents == Shape{1, 3, 2});
  CHECK(once.values == Values{2, 5, 1, 4, 0, 3});
  CHECK(turned(x, 2, 1, 2).values == Values{5, 4, 3, 2, 1, 0});
  CHECK(turned(x, -1, 1, 2).values == turned(x, 3, 1, 2).values);
  const auto pixels = counting({1, 1, 2}, 3);
  CHECK(flipped(pixels, 2).values == Values{3, 4, 5, 0, 1, 2});

  // A cube has 24 rotations; with mirror images 48. Each occurs about equally often.
  for (const auto& [extents, mirrors, expected] : {std::tuple{Shape{2, 2, 2}, false, std::size_t{24}},
                                                   {Shape{2, 2, 2}, true, 48},
                                                   {Shape{1, 2, 2}, false, 4},
                                                   {Shape{1, 2, 2}, true, 8},
                                                   {Shape{1, 2, 3}, false, 2},
                                                   {Shape{2, 2, 3}, false, 8}}) {
    std::map<Values, int> seen;
    const Recipe recipe{random_turn(mirrors)};
    const int draws = 2000;
    for (int i = 0; i < draws; ++i) {
      auto y = counting(extents);
      recipe.apply(y, Philox{4, static_cast<std::uint64_t>(i)});
      CHECK(y.extents == extents);
      ++seen[y.values];
    }
    CHECK(seen.size() == expected);
    // Mirror images are a flip and a swap of two axes.
    CHECK(seen.contains(flipped(counting(extents), 2).values) == mirrors);
    for (const auto& axes : {std::array<int, 3>{0, 2, 1}, {1, 0, 2}, {2, 1, 0}}) {
      const auto exchanged = permuted(counting(extents), {.axes = axes});
      if (exchanged.extents == extents && extents[0] == extents[1]) CHECK(seen.contains(exchanged.values) == mirrors);
    }
    if (extents == Shape{1, 2, 2}) CHECK(seen.contains(Values{0, 2, 1, 3}) == mirrors);
    for (const auto& [values, times] : seen) CHECK(times > draws / static_cast<int>(expected) / 3);
  }
}

TEST_CASE("augment: fits") {
  const auto x = counting({1, 2, 4});
  CHECK(fitted(x, {1, 2, 2}, Fit::cover).values == Values{1, 2, 5, 6});  // the middle
  CHECK(fitted(x, {1, 1, 1}, Fit::cover).values == Values{3.5});         // half the extents, then the middle
  CHECK(fitted(x, {1, 2, 2}, Fit::pad).values == Values{1, 2, 5, 6});
  CHECK(fitted(x, {1, 3, 6}, Fit::pad).values == Values{0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0});
  CHECK(fitted(counting({1, 1, 1}), {3, 1, 1}, Fit::pad).values == Values{0, 0, 0});
}

TEST_CASE("augment: values by hand") {
  Sample x({1, 1, 2}, 3);
  x.values = {1, 0, 0, 0.2F, 0.4F, 0.6F};
  auto y = x;
  grey(y);
  check_close(y.values, {0.299F, 0.299F, 0.299F, 0.363F, 0.363F, 0.363F});
  y = x, brightness(y, 2);
  check_close(y.values, {1, 0, 0, 0.4F, 0.8F, 1});
  y = x, contrast(y, 0);
  check_close(y.values, Values(6, 0.331F));
  y = x, saturation(y, 0);
  check_close(y.values, {0.299F, 0.299F, 0.299F, 0.363F, 0.363F, 0.363F});
  y = x, hue(y, 1.0 / 3);  // red to green
  check_close(y.values, {0, 1, 0, 0.6F, 0.2F, 0.4F}, 1e-5);
  y = x, hue(y, -1.0 / 3);  // red to blue
  check_close(y.values, {0, 0, 1, 0.4F, 0.6F, 0.2F}, 1e-5);
  y = x, linear(y, 2, -1);
  check_close(y.values, {1, -1, -1, -0.6F, -0.2F, 0.2F});
  y = x, gamma(y, 2);
  check_close(y.values, {1, 0, 0, 0.04F, 0.16F, 0.36F});
  y = x, normalise(y, std::vector<double>{0.5, 0, 0.1}, std::vector<double>{0.5, 2, 0.1});
  check_close(y.values, {1, 0, -1, -0.6F, 0.2F, 5});
  y = x, erase(y, {Shape{0, 0, 1}, Shape{1, 1, 2}}, 7);
  check_close(y.values, {1, 0, 0, 7, 7, 7});
  CHECK(has(error_text([&] { erase(y, {Shape{0, 0, 1}, Shape{1, 1, 3}}, 7); }), "not inside"));
  CHECK(has(error_text([&] { normalise(y, std::vector<double>{0, 0}, std::vector<double>{1, 1}); }), "2 means"));
  auto two = noise_of({1, 2, 2}, 2);
  CHECK(has(error_text([&] { hue(two, 0.1); }), "1 or 3 channels, not 2"));

  // Blur of a point: the kernel, mirrored at the edge; sums are preserved.
  Sample point({1, 1, 9}, 1);
  point.values[4] = 1;
  blur(point, 0.5);
  const double e = std::exp(-2.0), f = std::exp(-8.0), sum = 1 + 2 * e + 2 * f;
  check_close(point.values, {0, 0, static_cast<float>(f / sum), static_cast<float>(e / sum), static_cast<float>(1 / sum),
                             static_cast<float>(e / sum), static_cast<float>(f / sum), 0, 0});
  Sample edge({1, 1, 3}, 1);
  edge.values = {0, 1, 0};
  blur(edge, 0.5);  // at 0 the neighbours -1 and 1 are both cell 1
  CHECK(static_cast<double>(edge.values[0]) == doctest::Approx(2 * e / sum));

  // Noise has the given deviation, and does not depend on the extents of the volume.
  Sample many({8, 16, 16}, 1), fewer({1, 3, 3}, 1);
  noise(many, 0.5, Philox{5, 6}), noise(fewer, 0.5, Philox{5, 6});
  double mean = 0, square = 0;
  for (const float v : many.values) mean += v, square += static_cast<double>(v) * v;
  mean /= 2048, square /= 2048;
  CHECK(std::abs(mean) < 0.04);
  CHECK(std::sqrt(square) == doctest::Approx(0.5).epsilon(0.05));
  for (std::size_t i = 0; i < 9; ++i) CHECK(many.values[i] == fewer.values[i]);
}

TEST_CASE("augment: elastic maps are smooth, random and of the size asked for") {
  // A ramp makes displacements along x visible.
  const std::int64_t n = 64;
  Sample ramp({1, n, n}, 1);
  for (std::int64_t i = 0; i < n * n; ++i) ramp.values[static_cast<std::size_t>(i)] = static_cast<float>(i % n);
  double squares = 0, largest_step = 0;
  int count = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto y = warped(ramp, {}, {.amplitude = 0.02, .spacing = 0.25, .random = Philox{seed, 0}}, ramp.extents);
    for (std::int64_t h = 8; h < n - 8; ++h)
      for (std::int64_t w = 8; w < n - 8; ++w) {
        const auto at = [&](std::int64_t i) {
          return static_cast<double>(y.values[static_cast<std::size_t>(h * n + i)]) - static_cast<double>(i);
        };
        squares += at(w) * at(w), ++count;
        largest_step = std::max(largest_step, std::abs(at(w) - at(w - 1)));
      }
  }
  const double deviation = std::sqrt(squares / count);
  CHECK(deviation > 0.45 * 0.02 * n);
  CHECK(deviation < 0.9 * 0.02 * n);
  CHECK(largest_step < 0.4);
  CHECK(has(error_text([&] { warped(ramp, {}, {.amplitude = 1, .spacing = 0.01}, ramp.extents); }),
            "of the width is less than one of"));
  CHECK(has(error_text([&] { warped(noise_of({2, 2, 2}, 1), {}, {}, {2, 2, 2}); }), "maps need pictures"));
}

TEST_CASE("augment: random crops and boxes have the areas asked for") {
  const Shape extents{1, 40, 50};
  // A crop of a ramp shows its window.
  Sample ramp(extents, 2);
  for (std::int64_t h = 0; h < 40; ++h)
    for (std::int64_t w = 0; w < 50; ++w) {
      ramp.values[static_cast<std::size_t>(2 * (h * 50 + w))] = static_cast<float>(h);
      ramp.values[static_cast<std::size_t>(2 * (h * 50 + w) + 1)] = static_cast<float>(w);
    }
  const Recipe crop{random_resized_crop({.to = {1, 64, 64}, .area = {0.25, 0.5}, .aspect = {0.5, 2}})};
  double least = 1, most = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    auto x = ramp;
    crop.apply(x, Philox{1, i});
    REQUIRE(x.extents == Shape{1, 64, 64});
    const auto corner = [&](std::size_t h, std::size_t w, std::size_t c) {
      return static_cast<double>(x.values[2 * (h * 64 + w) + c]);
    };
    const double height = corner(63, 0, 0) - corner(0, 0, 0) + 1, width = corner(0, 63, 1) - corner(0, 0, 1) + 1;
    least = std::min(least, height * width / 2000), most = std::max(most, height * width / 2000);
    CHECK(width / height > 0.45);
    CHECK(width / height < 2.25);
  }
  CHECK((least > 0.22 && least < 0.3));
  CHECK((most < 0.53 && most > 0.45));

  const Recipe all{random_resized_crop({.to = extents, .area = {1, 1}, .aspect = {1.25, 1.25}})};
  auto x = noise_of(extents, 1);
  const auto before = x.values;
  all.apply(x, {});
  CHECK(x.values == before);
  const Recipe impossible{random_resized_crop({.to = {1, 8, 8}, .area = {1, 1}, .aspect = {1, 1}})};
  impossible.apply(x, {});  // the largest square, from the middle
  CHECK(x.extents == Shape{1, 8, 8});

  const Recipe box{random_erase({.area = {0.1, 0.1}, .value = -1})};
  for (const auto& shape : {Shape{1, 40, 40}, Shape{16, 16, 16}}) {
    auto y = noise_of(shape, 1);
    box.apply(y, Philox{2, 2});
    const auto erased = std::count(y.values.begin(), y.values.end(), -1.0F);
    CHECK(static_cast<double>(erased) / static_cast<double>(y.values.size()) == doctest::Approx(0.1).epsilon(0.3));
  }
  const Recipe shifted{random_crop({1, 4, 4}, 2)};
  auto counted = counting({1, 4, 4});
  shifted.apply(counted, Philox{3, 3});
  CHECK(counted.extents == Shape{1, 4, 4});
  CHECK(has(error_text([&] { (void)shifted.extents({1, 2, 1}); }), "does not fit"));
}

TEST_CASE("augment: recipes") {
  const auto recipe = photographs({1, 96, 96});
  CHECK(recipe.text() ==
        "resized crop [1, 96, 96] (area 0.08 to 1, aspect 0.75 to 1.333), 0.5: flip W, 0.8: colour jitter (brightness 0.8, "
        "contrast 0.8, saturation 0.8, hue 0.2), 0.2: grey, 0.5: blur (sigma 0.04286 to 0.8571)");
  CHECK(Recipe().text() == "nothing");
  CHECK(recipe.extents({1, 100, 120}) == Shape{1, 96, 96});
  const auto base = noise_of({1, 50, 60}, 3);
  const auto made = [&](const Recipe& r, const Sample& from, std::uint64_t stream) {
    auto x = from;
    r.apply(x, Philox{7, stream});
    return x.values;
  };
  CHECK(made(recipe, base, 1) == made(recipe, base, 1));
  CHECK(made(recipe, base, 1) != made(recipe, base, 2));
  for (const float value : made(recipe, base, 1)) CHECK((value >= 0 && value <= 1));
  const auto volume = noise_of({12, 12, 12}, 1);
  CHECK(made(volumes({8, 8, 8}), volume, 1).size() == 512);
  CHECK(made(volumes({8, 8, 8}), volume, 1) != made(volumes({8, 8, 8}), volume, 2));
  CHECK(made(handwriting({1, 32, 32}), noise_of({1, 28, 28}, 1), 1).size() == 1024);

  int applied = 0;
  const Recipe rarely{with(0.25, {"count", 1, [&](Sample&, const Philox&) { ++applied; }, {}})};
  auto x = base;
  for (std::uint64_t i = 0; i < 1000; ++i) rarely.apply(x, Philox{8, i});
  CHECK((applied > 200 && applied < 300));
  CHECK(has(error_text([&] {
              (void)Recipe{with(0.5, resize({1, 4, 4}))}.extents({1, 8, 8});
            }),
            "with a probability of only 0.5"));
  CHECK(has(error_text([&] { (void)handwriting({1, 32, 32}).extents({8, 8, 8}); }), "a warp needs pictures"));
  CHECK(has(error_text([&] { random_resized_crop({.to = {8, 8}}); }), "[D, H, W]"));
  CHECK(has(error_text([&] { random_resized_crop({.to = {1, 8, 8}, .area = {0.5, 2}}); }), "the area of a crop is at most 1"));
  CHECK(has(error_text([&] { with(1.5, to_grey()); }), "probability must be from 0 to 1"));
}
