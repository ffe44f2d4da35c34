// Samples of different extents: windows of them, deformed and augmented, the same on every grid.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "comm/distributed/redistribute.h"
#include "models/data/data.h"
#include "models/data/sources/pack.h"
#include "models/data/view_loader.h"
#include "tests/models/data/scans.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Batches {
  std::vector<Shape> shapes;
  std::vector<double> x, y;
  bool operator==(const Batches&) const = default;
};
Batches batches(const GridExtents& g, data::LoaderOptions options, std::int64_t epochs = 2) {
  Batches result;
  run_threads(g.sample * g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), g);
    const data::Loader loader(std::make_shared<Scans>(), mine);
    for (std::int64_t e = 0; e < epochs; ++e)
      for (const auto& [x, y] : loader.epoch(e)) {
        const auto all_x = gather_all(x), all_y = gather_all(y);
        if (transport->rank() != 0) continue;
        result.shapes.push_back(all_x.shape()), result.shapes.push_back(all_y.shape());
        const auto vx = all_x.to_vector(), vy = all_y.to_vector();
        result.x.insert(result.x.end(), vx.begin(), vx.end()), result.y.insert(result.y.end(), vy.begin(), vy.end());
      }
  });
  return result;
}

const Shape window{6, 6, 6};
data::LoaderOptions cropped(double foreground = 0) {
  return {.batch = 2, .seed = 5, .crop = data::Crop{.extents = window, .foreground = foreground}};
}

}  // namespace

TEST_CASE("volumes: a window holds the cells at its place, zeros outside the sample") {
  const auto source = std::make_shared<Scans>();
  const data::Loader loader(source, cropped());
  CHECK(loader.shape() == Shape{2, 6, 6, 6, 3});
  bool padded = false, inside = false;
  for (std::int64_t step = 0; step < loader.steps(); ++step) {
    const auto samples = loader.samples_of(3, step);
    const auto [x, y] = loader.batch(3, step);
    const auto values = x.to_vector(), labels = y.to_vector();
    std::size_t next = 0;
    for (const auto sample : samples) {
      const auto extents = source->extents_of(sample);
      const auto begin = data::draw_window(5, 3, sample, extents, {.extents = window}, nullptr);
      for (std::int64_t d = 0; d < 6; ++d)
        for (std::int64_t h = 0; h < 6; ++h)
          for (std::int64_t w = 0; w < 6; ++w, ++next) {
            const std::array<std::int64_t, 3> at{begin[0] + d, begin[1] + h, begin[2] + w};
            bool there = true;
            for (std::size_t a = 0; a < 3; ++a) there = there && at[a] >= 0 && at[a] < extents[static_cast<int>(a)];
            (there ? inside : padded) = true;
            for (std::size_t a = 0; a < 3; ++a) REQUIRE(values[3 * next + a] == (there ? static_cast<double>(at[a] + 1) : 0));
            REQUIRE(labels[next] == (there ? Scans::label(sample, at) : 0));
          }
      for (std::size_t a = 0; a < 3; ++a)
        if (const auto n = extents[static_cast<int>(a)]; n <= 6) CHECK(begin[a] == -((6 - n) / 2));
        else CHECK((begin[a] >= 0 && begin[a] <= n - 6));
    }
  }
  CHECK((padded && inside));
}

TEST_CASE("volumes: windows reach every place, and those with foreground hold some") {
  const Shape extents{8, 8, 8};
  data::ForegroundCells cells(std::make_shared<Scans>());
  std::set<std::array<std::int64_t, 3>> places;
  int aimed = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    places.insert(data::draw_window(1, epoch, 3, extents, {.extents = window}, nullptr));
    // Labels of three classes, one of which is a single cell: at least a third of the windows contain it.
    const auto begin = data::draw_window(1, epoch, 3, extents, {.extents = {1, 1, 1}, .foreground = 1}, &cells);
    CHECK(Scans::label(3, begin) != 0);
    aimed += begin == std::array<std::int64_t, 3>{1, 2, 3};
  }
  CHECK(places.size() == 27);
  CHECK(aimed > 90);
  CHECK(aimed < 180);
}

TEST_CASE("volumes: windows are the same on every grid, whatever happens to them") {
  for (int kind = 0; kind < 3; ++kind) {
    auto options = cropped(0.5);
    options.flips = kind > 0, options.transpositions = kind > 0;
    options.shuffle = true;
    if (kind == 2)
      options.augment = {augment::random_elastic(1.7, 3), augment::random_contrast(), augment::random_noise({0, 0.5})};
    const auto expected = batches({}, options);
    CHECK(expected.shapes.size() == 12);
    for (const GridExtents& g : {GridExtents{.depth = 2},
                                 {.sample = 2},
                                 {.height = 3},
                                 {.sample = 2, .depth = 2, .width = 2},
                                 {.depth = 3, .height = 2},
                                 {.width = 6},
                                 {.depth = 2, .height = 2, .width = 2}})
      CHECK(batches(g, options) == expected);
  }
}

TEST_CASE("volumes: two epochs of three passes have the batches of six epochs") {
  auto options = cropped(0.5);
  options.flips = options.shuffle = true, options.augment = {augment::random_elastic(1.7, 3)};
  for (const bool drops : {false, true}) {
    options.drop_last = drops, options.passes = 1;
    const auto expected = batches({}, options, 6);
    const data::Loader six(std::make_shared<Scans>(), options);
    options.passes = 3;
    const data::Loader two(std::make_shared<Scans>(), options);
    CHECK(batches({}, options, 2) == expected);
    for (const auto& [store, collective] : {std::pair{0, false}, {0, true}, {1 << 20, false}}) {
      auto shared = options;
      shared.store_bytes = store, shared.collective = collective;
      CHECK(batches({.sample = 2, .depth = 2}, shared, 2) == expected);
    }
    CHECK(two.steps() == 3 * six.steps());
    CHECK(two.samples() == 3 * six.samples());
    const auto of_pass = six.steps();
    for (std::int64_t step = 0; step < two.steps(); ++step) {
      CHECK(two.samples_of(1, step) == six.samples_of(3 + step / of_pass, step % of_pass));
      CHECK(two.batch(1, step).x.to_vector() == six.batch(3 + step / of_pass, step % of_pass).x.to_vector());
    }
    // A training that is resumed within an epoch.
    const auto first = of_pass + 1;
    auto step = first;
    for (const auto& batch : two.epoch(1, first)) CHECK(batch.x.to_vector() == two.batch(1, step++).x.to_vector());
    CHECK(step == two.steps());
  }
  options.passes = 0;
  CHECK(has(error_text([&] { (void)data::Loader(std::make_shared<Scans>(), options); }), "at least one pass"));
}

TEST_CASE("volumes: an elastic deformation moves cells smoothly and no further than it says") {
  auto options = cropped();
  options.samples = {3}, options.batch = 1;
  options.crop->extents = {8, 8, 8};
  const auto plain = batches({}, options);
  options.augment = {augment::random_elastic(0, 4)};
  CHECK(batches({}, options) == plain);
  options.augment = {augment::random_elastic(1.5, 4)};
  const auto moved = batches({}, options);
  double furthest = 0;
  for (std::int64_t d = 2; d < 6; ++d)
    for (std::int64_t h = 2; h < 6; ++h)
      for (std::int64_t w = 2; w < 6; ++w) {  // some places of the other windows lie outside
        const auto cell = static_cast<std::size_t>((d * 8 + h) * 8 + w);
        std::array<std::int64_t, 3> nearest{};
        for (std::size_t a = 0; a < 3; ++a) {
          const double there = moved.x[3 * cell + a] - 1, here = plain.x[3 * cell + a] - 1;
          furthest = std::max(furthest, std::abs(there - here));
          nearest[a] = static_cast<std::int64_t>(std::floor(there + 0.5));
        }
        CHECK(moved.y[cell] == Scans::label(3, nearest));
      }
  CHECK(furthest > 0.3);
  CHECK(furthest <= 1.5 + 1e-5);
}

TEST_CASE("volumes: steps that change values draw new numbers in each epoch and leave labels alone") {
  auto options = cropped();
  options.batch = 1, options.samples = {3};
  const auto plain = batches({}, options);
  options.augment = {augment::random_brightness(), augment::random_contrast(), augment::random_noise({0.5, 0.5})};
  const auto changed = batches({}, options);
  CHECK(changed.y == plain.y);
  const auto cells = static_cast<std::size_t>(window.elements()) * 3;
  REQUIRE(plain.x.size() == 2 * cells);
  for (std::size_t i = 0; i < cells; ++i)
    CHECK(std::abs((changed.x[i] - plain.x[i]) - (changed.x[cells + i] - plain.x[cells + i])) > 1e-9);
}

TEST_CASE("volumes: what cannot be is refused") {
  const auto source = std::make_shared<Scans>();
  CHECK(has(error_text([&] { (void)data::Loader(source, {}); }), "differ in their extents"));
  CHECK(has(error_text([&] { (void)data::pack(*source, "/nowhere/at/all.h5"); }), "differ in their extents"));
  CHECK(has(error_text([&] { (void)data::ViewLoader(source, {.batch = 1, .views = {{{}, 1}}}); }), "differ in their extents"));
  auto options = cropped();
  options.shifts = true;
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "periodic shifts"));
  options = cropped(2);
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "from 0 to 1"));
  options = cropped();
  options.crop->extents = {6, 0, 6};
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "at least 1 each"));
  CHECK(has(error_text([] { (void)augment::random_elastic(-1); }), "displacement of up to -1 cells"));
  options = cropped();
  options.transpositions = true, options.crop->extents = {6, 6, 5};
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "need cubes"));
}
