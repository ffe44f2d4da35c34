// Pairs of views: the same for every grid, number of ranks and number of threads.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "comm/distributed/redistribute.h"
#include "models/data/sources/open.h"
#include "models/data/view_loader.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/ranks.h"
#include "tests/support/shared_data.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

// Bytes, with two labels that identify the sample.
SourcePtr bytes_source(std::int64_t n, const Shape& extents, std::int64_t channels) {
  Samples samples{"made.up", n, channels, extents, DType::uint8, {}};
  for (std::int64_t i = 0; i < n * extents.elements() * channels; ++i)
    samples.values.push_back(static_cast<std::byte>(Philox{9, 9}.below(static_cast<std::uint64_t>(i), 256)));
  std::vector<Labels> labels{{"ten", {}}, {"square", {}}};
  for (std::int64_t i = 0; i < n; ++i) labels[0].values.push_back(10 * i), labels[1].values.push_back(i * i);
  return std::make_shared<MemorySource>(std::move(samples), std::move(labels));
}

using Values = std::vector<double>;

// The contents of two epochs, gathered.
std::vector<Values> all_of(const ViewLoader& loader, bool distributed) {
  std::vector<Values> result;
  const auto whole = [&](const Tensor& x) { return distributed ? gather_all(x).to_vector() : x.to_vector(); };
  for (std::int64_t e = 0; e < 2; ++e)
    for (const auto& batch : loader.epoch(e)) {
      for (const auto& x : batch.x) result.push_back(whole(x));
      for (const auto& labels : batch.labels) result.push_back(whole(labels));
      result.push_back(whole(batch.indices));
    }
  return result;
}

void check_grids(const SourcePtr& source, const ViewOptions& options, const std::vector<GridExtents>& grids) {
  const auto expected = all_of(ViewLoader(source, options), false);
  for (const int workers : {0, 2, 4}) {
    auto threads = options;
    threads.workers = workers, threads.ahead = workers;
    CHECK(all_of(ViewLoader(source, threads), false) == expected);
  }
  for (const auto& g : grids)
    check_on_ranks(g.sample * g.depth * g.height * g.width, "views", [&](const Communicator& world) {
      auto mine = options;
      mine.grid = make_grid(world, g);
      require(all_of(ViewLoader(source, mine), true) == expected, "[test] views differ on {} x {} x {} x {}", g.sample, g.depth,
              g.height, g.width);
    });
}

}  // namespace

TEST_CASE("views: the same pairs on every grid and number of threads") {
  // 11 samples in batches of 5: the ranks' parts are uneven, and so is the last batch.
  check_grids(bytes_source(11, {1, 12, 10}, 3),
              {.batch = 5, .seed = 7, .views = {{augment::photographs({1, 8, 8}), 2}}, .drop_last = false},
              {{1}, {2}, {3}, {4}, {.sample = 1, .height = 2}, {.sample = 2, .width = 2}, {.height = 3}});
  check_grids(bytes_source(6, {6, 6, 6}, 1), {.batch = 3, .seed = 8, .views = {{augment::volumes({4, 5, 6}), 2}}},
              {{2}, {4}, {.sample = 2, .depth = 2}, {.depth = 2, .width = 2}});
  // Multi-crop: views of two extents.
  check_grids(bytes_source(6, {1, 12, 12}, 1),
              {.batch = 4,
               .seed = 9,
               .views = {{augment::handwriting({1, 12, 12}), 2}, {{augment::random_resized_crop({.to = {1, 6, 6}})}, 3}}},
              {{2}, {3}, {.sample = 2, .height = 2}});
}

TEST_CASE("views: what a batch holds") {
  const auto source = bytes_source(10, {1, 4, 4}, 1);
  const ViewLoader loader(source, {.batch = 4, .seed = 3, .views = {{augment::Recipe(), 1}, {{augment::random_flip(2)}, 2}}});
  CHECK(loader.steps() == 2);
  CHECK(loader.samples() == 8);
  CHECK(loader.views() == 3);
  CHECK(loader.shape(1) == Shape{4, 1, 4, 4, 1});
  CHECK(loader.layout(0) == nullptr);
  CHECK(loader.text() == "1 x (nothing) + 2 x (0.5: flip W)");
  std::set<std::int64_t> seen;
  for (const auto& batch : loader.epoch(0)) {
    REQUIRE(batch.x.size() == 3);
    REQUIRE(batch.labels.size() == 2);
    CHECK(batch.bad_sample == -1);
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto sample = batch.indices.data<std::int64_t>()[i];
      seen.insert(sample);
      CHECK(batch.labels[0].data<std::int64_t>()[i] == 10 * sample);
      CHECK(batch.labels[1].data<std::int64_t>()[i] == sample * sample);
      CHECK(batch.x[0].is_constant());
      // The identity view of the recipe is the sample, and views of an index do not depend on its place in the batch.
      const auto stored = source->values(sample, source->whole());
      for (std::size_t k = 0; k < 16; ++k)
        CHECK(batch.x[0].data<float>()[16 * i + static_cast<std::int64_t>(k)] == static_cast<float>(stored[k] / 255.0));
    }
  }
  CHECK(seen.size() == 8);
  CHECK(loader.throughput().samples == 8);

  // Another batch size, order and subset: the same views of the same samples.
  const auto flips = [&](const ViewOptions& options) {
    std::map<std::int64_t, Values> views;
    for (const auto& batch : ViewLoader(source, options).epoch(1))
      for (std::int64_t i = 0; i < batch.indices.dim(0); ++i) {
        const float* values = batch.x[1].data<float>() + 16 * i;
        views[batch.indices.data<std::int64_t>()[i]] = Values(values, values + 16);
      }
    return views;
  };
  ViewOptions options{.batch = 2, .seed = 3, .views = {{{augment::random_resized_crop({.to = {1, 4, 4}})}, 2}}};
  const auto all = flips(options);
  auto other = options;
  other.batch = 3, other.shuffle = false, other.samples = {8, 1, 5};
  const auto some = flips(other);
  CHECK(some.size() == 3);
  for (const auto& [sample, values] : some) CHECK(values == all.at(sample));
  options.seed = 4;
  CHECK(flips(options) != all);
  options.seed = 3;
  // Views differ from each other and between epochs.
  const ViewLoader again(source, options);
  const auto first = again.batch(0, 0), later = again.batch(1, 0);
  CHECK(first.x[0].to_vector() != first.x[1].to_vector());
  CHECK(ViewLoader(source, other).batch(0, 0).x[0].to_vector() != ViewLoader(source, other).batch(1, 0).x[0].to_vector());
  (void)later;

  std::int64_t place = 3;  // an epoch whose first batches have been used already
  for (const auto& batch : again.epoch(1, place)) CHECK(batch.x[1].to_vector() == again.batch(1, place++).x[1].to_vector());
  CHECK(place == again.steps());

  for (const auto& batch : again.epoch(0)) {  // stopped early: views in preparation must not outlive their memory
    CHECK(batch.x[0].dim(0) == 2);
    break;
  }
}

TEST_CASE("views: what is refused") {
  const auto source = bytes_source(4, {1, 4, 4}, 1);
  const auto refused = [&](const ViewOptions& options) { return error_text([&] { ViewLoader(source, options); }); };
  CHECK(has(refused({.batch = 2}), "at least one view"));
  CHECK(has(refused({.batch = 5, .views = {{}}}), "4 samples make no batch of 5"));
  CHECK(has(refused({.batch = 0, .views = {{}}}), "at least one sample"));
  CHECK(has(refused({.batch = 2, .views = {{{augment::random_crop({1, 8, 8})}}}}), "does not fit"));
  CHECK(has(refused({.batch = 2, .views = {{}}, .samples = {4}}), "sample 4 of 4"));
  // A recipe that breaks its declared extents.
  const augment::Recipe broken{{"grow", 1, [](augment::Sample& x, const Philox&) { x = augment::Sample({1, 9, 9}, 1); }, {}}};
  CHECK(has(error_text([&] { ViewLoader(source, {.batch = 2, .views = {{broken}}}).batch(0, 0); }),
            "'grow' made extents [1, 9, 9]"));
  check_on_ranks(3, "planes", [&](const Communicator& world) {
    const auto text = error_text([&] {
      ViewLoader(
          source,
          {.grid = make_grid(world, {.height = 3}), .batch = 2, .views = {{{augment::random_resized_crop({.to = {1, 2, 4}})}}}});
    });
    require(has(text, "3 ranks along height for 2 planes"), "[test] {}", text);
  });
}

TEST_CASE("views: a sample that is not finite is named on all ranks") {
  const Folder folder;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(6 * 4, 0.5F);
    values[4 * 4 + 1] = bad;
    write_file(folder / "v.npy", npy_file("'<f4'", "(6, 2, 2)", values));
    const auto source = open_source(folder / "v.npy");
    check_on_ranks(3, "not finite", [&](const Communicator& world) {
      const ViewLoader loader(source,
                              {.grid = make_grid(world, {.sample = 3}), .batch = 3, .shuffle = false, .views = {{{}, 2}}});
      require_finite(loader.batch(0, 0), world);
      const auto batch = loader.batch(0, 1);
      require((batch.bad_sample == 4) == (world.rank() == 1), "[test] rank {}: {}", world.rank(), batch.bad_sample);
      const auto text = error_text([&] { require_finite(batch, world); });
      require(has(text, "sample 4 is not finite: ") && has(text, "v.npy [4]"), "[test] {}", text);
    });
  }
  // An unreadable sample throws when its batch is requested.
  struct Broken : MemorySource {
    using MemorySource::MemorySource;
    void read(std::int64_t sample, const Box& box, std::byte* out) const override {
      require(sample != 3, "[test] sample 3 is broken");
      MemorySource::read(sample, box, out);
    }
  };
  const auto source = std::make_shared<Broken>(Samples{"x", 6, 1, {1, 1, 1}, DType::uint8, Bytes(6)}, std::vector<Labels>{});
  const ViewLoader loader(source, {.batch = 2, .shuffle = false, .views = {{{}, 2}}, .workers = 2});
  int batches = 0;
  CHECK(has(error_text([&] {
              for (const auto& batch : loader.epoch(0)) batches += batch.x.size() == 2 ? 1 : 0;
            }),
            "sample 3 is broken"));
  CHECK(batches == 1);
}

TEST_CASE("views: real volumes and letters") {
  const char* name = "views: real volumes and letters";
  const auto path = shared_data("3d/adrenalmnist3d/adrenal28.h5");
  if (path.empty()) return skip_test(name, no_shared_data);
  if (without_hdf5(name)) return;
  const auto glands = open_source(path, {.group = "val"});
  check_grids(glands,
              {.batch = 8, .seed = 1, .views = {{augment::volumes({24, 24, 24}), 2}}, .samples = {3, 1, 4, 15, 9, 26, 5, 35}},
              {{2}, {.sample = 2, .depth = 2}});
  const auto letters = shared_data("2d/omniglot_small1-images-idx3-ubyte.gz");
  if (!gzip_available()) return;
  const auto source = open_source(letters, {.extents = {28, 28}});
  const ViewLoader loader(source, {.batch = 64, .seed = 1, .views = {{augment::handwriting({1, 32, 32}), 2}}});
  const auto batch = loader.batch(0, 0);
  CHECK(batch.x[1].shape() == Shape{64, 1, 32, 32, 1});
  for (const auto& x : batch.x) {
    double ink = 0;
    for (const double value : x.to_vector()) {
      CHECK((value >= 0 && value <= 1));
      ink += value;
    }
    CHECK(ink / static_cast<double>(x.elements()) > 0.02);
    CHECK(ink / static_cast<double>(x.elements()) < 0.3);
  }
}
