// Sources, loaders, augmentation, with small universes generated here.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <mutex>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_file.h"
#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/data_augment.h"
#include "models/data/sources/hdf5.h"
#include "tests/support/files.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

// Count of sample s at cell (d, h, w), channel c.
std::int16_t count(std::int64_t s, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
  const auto cell = static_cast<std::uint64_t>(((d * 64 + h) * 64 + w) * 8 + c);
  return static_cast<std::int16_t>(Philox{7, static_cast<std::uint64_t>(s)}.below(cell, 900));
}

void write_universe(const fs::path& path, std::int64_t s, const Shape& shape) {
  std::vector<std::int16_t> values;
  for (std::int64_t d = 0; d < shape[0]; ++d)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t w = 0; w < shape[2]; ++w)
        for (std::int64_t c = 0; c < shape[3]; ++c) values.push_back(count(s, d, h, w, c));
  std::vector<float> unit(4), physical(4);
  for (std::size_t i = 0; i < 4; ++i) unit[i] = static_cast<float>(s) + 0.125F * static_cast<float>(i), physical[i] = 2 * unit[i];
  Hdf5Writer writer(path, false);
  writer.write("full", shape, DType::int16, values.data());
  writer.write<float>("unitPar", unit);
  writer.write<float>("physPar", physical);
  writer.write_strings("namePar", {"Omega_m", "sigma_8", "N_spec", "H_0"});
  writer.commit();
}

const Shape extents{5, 6, 7};
constexpr std::int64_t universes = 7, channels = 2;

const fs::path& example() {
  static const Folder folder;
  static const bool written = [] {
    for (std::int64_t s = 0; s < universes; ++s)
      write_universe(folder.path / fmt::format("universe_{:05}.hdf5", s), s, {extents[0], extents[1], extents[2], channels});
    std::ofstream(folder.path / "notes.txt") << "not a universe";
    return true;
  }();
  (void)written;
  return folder.path;
}

struct Whole {
  Shape x_shape;
  std::vector<double> x, y;
  bool operator==(const Whole&) const = default;
};

// All batches of two epochs, gathered on rank 0 of `grid`.
std::vector<Whole> batches(const GridExtents& extents_of_grid, data::LoaderOptions options) {
  const auto& g = extents_of_grid;
  std::vector<Whole> result;
  run_threads(g.sample * g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), g);
    const data::Loader loader(example(), mine);
    for (std::int64_t e = 0; e < 2; ++e)
      for (auto [x, y] : loader.epoch(e)) {
        require(x.is_constant() && y.is_constant() && x.layout() && y.layout(), "[test] batches are constant and laid out");
        const auto all_x = gather_all(x), all_y = gather_all(y);
        if (transport->rank() == 0) result.push_back({all_x.shape(), all_x.to_vector(), all_y.to_vector()});
      }
  });
  return result;
}

std::vector<Whole> plain_batches(const data::LoaderOptions& options) {
  std::vector<Whole> result;
  const data::Loader loader(example(), options);
  for (std::int64_t e = 0; e < 2; ++e)
    for (const auto& [x, y] : loader.epoch(e)) {
      require(x.is_constant() && !x.layout(), "[test] without a grid tensors are plain");
      result.push_back({x.shape(), x.to_vector(), y.to_vector()});
    }
  return result;
}

}  // namespace

TEST_CASE("data: universes as they are stored") {
  if (without_hdf5("data: universes as they are stored")) return;
  const data::UniverseSource source(example(), {.open_files = 2});
  CHECK(source.size() == universes);
  CHECK(source.extents() == extents);
  CHECK(source.channels() == channels);
  CHECK(source.type() == DType::int16);
  CHECK(source.target_names() == std::vector<std::string>{"Omega_m", "sigma_8", "N_spec", "H_0"});
  for (const std::int64_t s : {3, 0, 6, 3, 5, 1}) {  // more than may be open at once
    CHECK(source.targets(s)[1] == static_cast<double>(s) + 0.125);
    CHECK(source.physical(s)[1] == 2 * static_cast<double>(s) + 0.25);
    const auto box = source.values(s, {{1, 5, 2}, {3, 6, 5}});
    CHECK(box.front() == count(s, 1, 5, 2, 0));
    CHECK(box.back() == count(s, 2, 5, 4, 1));
  }
  source.check(0, 1);
  CHECK(data::UniverseSource(example() / "universe_00002.hdf5").targets(0)[0] == 2);
  CHECK(source.has_physical());
}

TEST_CASE("data: universes whose parameters nobody knows") {
  if (without_hdf5("data: universes whose parameters nobody knows")) return;
  const Folder folder;
  const std::vector<std::int16_t> counts{0, 1, 3, 7, 0, 0, 1, 2};
  Hdf5Writer writer(folder / "u.hdf5", false);
  writer.write("full", {2, 2, 2, 1}, DType::int16, counts.data());
  writer.commit();
  CHECK(has(error_text([&] { data::UniverseSource(folder / "u.hdf5"); }), "unitPar"));
  const auto source = std::make_shared<data::UniverseSource>(folder / "u.hdf5", data::UniverseOptions{.targets = false});
  CHECK(source->target_type() == data::TargetType{});
  CHECK(!source->has_physical());
  source->check(0, 1);
  std::ofstream(folder / "v.hdf5") << "this is not HDF5";
  const auto with_another = data::UniverseSource(folder.path, {.targets = false});
  CHECK(has(error_text([&] { with_another.check(0, 1); }), "v.hdf5: not an HDF5 file"));
  CHECK(source->values(0, source->whole()) == std::vector<double>(counts.begin(), counts.end()));
  const auto batch = data::Loader(source, {.batch = 1}).batch(0, 0);
  CHECK(batch.x.to_vector()[3] == doctest::Approx(std::log(8.0)));
  CHECK(batch.y.elements() == 0);
}

TEST_CASE("data: a batch is log(1 + count) of its samples") {
  if (without_hdf5("data: a batch is log(1 + count) of its samples")) return;
  const data::Loader loader(example(), {.batch = 3, .seed = 5, .shuffle = true});
  CHECK(loader.steps() == 3);
  CHECK(loader.shape() == Shape{3, 5, 6, 7, channels});
  std::int64_t step = 0;
  for (const auto& [x, y] : loader.epoch(4)) {
    const auto samples = loader.samples_of(4, step++);
    REQUIRE(x.dim(0) == static_cast<std::int64_t>(samples.size()));
    REQUIRE(y.shape() == Shape{x.dim(0), 4});
    const float* values = x.data<float>();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      CHECK(y.data<float>()[4 * i + 2] == static_cast<float>(samples[i]) + 0.25F);
      for (std::int64_t d = 0; d < 5; ++d)
        for (std::int64_t h = 0; h < 6; ++h)
          for (std::int64_t w = 0; w < 7; ++w)
            for (std::int64_t c = 0; c < channels; ++c)
              REQUIRE(*values++ == static_cast<float>(std::log1p(static_cast<double>(count(samples[i], d, h, w, c)))));
    }
  }
  CHECK(step == 3);
}

TEST_CASE("data: the batches of every grid are those of one rank, bit for bit") {
  if (without_hdf5("data: the batches of every grid are those of one rank, bit for bit")) return;
  const data::LoaderOptions options{
      .batch = 3, .seed = 9, .shuffle = true, .flips = true, .shifts = true, .dtype = DType::float64};
  const auto expected = plain_batches(options);
  REQUIRE(expected.size() == 6);
  CHECK(expected[2].x_shape == Shape{1, 5, 6, 7, channels});  // the last, smaller one
  const std::vector<GridExtents> grids{{},
                                       {.depth = 2},
                                       {.sample = 2},
                                       {.sample = 2, .depth = 2},
                                       {.depth = 3},
                                       {.sample = 3},
                                       {.width = 3},
                                       {.sample = 2, .depth = 2, .height = 2},
                                       {.depth = 2, .height = 2, .width = 2},
                                       {.sample = 5},
                                       {.depth = 5, .width = 2}};
  for (const auto& grid : grids) {
    INFO("grid " << grid.sample << " " << grid.depth << " " << grid.height << " " << grid.width);
    CHECK(batches(grid, options) == expected);
  }
  // Neither prefetching nor caching changes the batches.
  for (const bool prefetch : {false, true})
    for (const std::int64_t cache : {std::int64_t{0}, std::int64_t{1} << 20}) {
      auto other = options;
      other.prefetch = prefetch, other.cache_bytes = cache;
      CHECK(plain_batches(other) == expected);
      CHECK(batches({.sample = 2, .depth = 2}, other) == expected);
    }
  auto still = options;
  still.flips = still.shifts = still.shuffle = false;
  const auto unmoved = plain_batches(still);
  CHECK(unmoved != expected);
  CHECK(batches({.sample = 2, .height = 2, .width = 2}, still) == unmoved);
}

TEST_CASE("data: augmentation of blocks is that of the whole volume") {
  const Shape cube{5, 5, 5};
  constexpr std::int64_t c = 3;
  std::vector<std::int16_t> stored;
  for (std::int64_t i = 0; i < 125 * c; ++i) stored.push_back(static_cast<std::int16_t>(i));
  int flipped = 0, shifted = 0, transposed = 0;
  for (std::int64_t sample = 0; sample < 40; ++sample) {
    const auto a = data::draw_augmentation(3, 1, sample, cube, {.flips = true, .shifts = true, .transpositions = true});
    flipped += a.flip[1] ? 1 : 0, shifted += a.shift[2] != 0 ? 1 : 0, transposed += a.axes[0] != 0 ? 1 : 0;
    for (const auto& block :
         {Box{{0, 0, 0}, {5, 5, 5}}, Box{{1, 0, 3}, {4, 2, 5}}, Box{{2, 2, 2}, {3, 3, 3}}, Box{{2, 2, 0}, {2, 4, 5}}}) {
      const auto extents_of_block = block.extents();
      std::vector<double> out(static_cast<std::size_t>(block.elements() * c), -1), expected;
      for (std::int64_t d = block.begin[0]; d < block.end[0]; ++d)
        for (std::int64_t h = block.begin[1]; h < block.end[1]; ++h)
          for (std::int64_t w = block.begin[2]; w < block.end[2]; ++w) {
            std::array<std::int64_t, 3> from{};
            const std::array<std::int64_t, 3> to{d, h, w};
            for (std::size_t i = 0; i < 3; ++i)
              from[static_cast<std::size_t>(a.axes[i])] = ((a.flip[i] ? 4 - to[i] : to[i]) + a.shift[i]) % 5;
            for (std::int64_t k = 0; k < c; ++k)
              expected.push_back(static_cast<double>(((from[0] * 5 + from[1]) * 5 + from[2]) * c + k));
          }
      std::int64_t cells = 0;
      for (const auto& piece : data::pieces_of(block, cube, a)) {
        cells += piece.box.elements();
        data::copy_piece(piece, {Box{{0, 0, 0}, cube}, DType::int16, stored.data()}, extents_of_block, c, data::Transform::none,
                         DType::float64, out.data(), [] { return "test"; });
      }
      CHECK(cells == block.elements());
      CHECK(out == expected);
    }
  }
  CHECK((flipped > 8 && flipped < 32 && shifted > 20 && transposed > 15 && transposed < 38));
}

TEST_CASE("data: every sample once per epoch, in another order each time") {
  if (without_hdf5("data: every sample once per epoch, in another order each time")) return;
  const data::Loader loader(example(), {.batch = 2, .seed = 1, .shuffle = true});
  const data::Loader subset(example(), {.batch = 2, .shuffle = true, .samples = {6, 1, 3}, .drop_last = true});
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t e = 0; e < 3; ++e) {
    std::vector<std::int64_t> order;
    for (std::int64_t s = 0; s < loader.steps(); ++s)
      for (const auto sample : loader.samples_of(e, s)) order.push_back(sample);
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
  }
  CHECK(orders[0] != orders[1]);
  CHECK(orders[1] != orders[2]);
  CHECK(subset.steps() == 1);
  CHECK(subset.samples() == 2);
  std::int64_t rows = 0;
  for (const auto& batch : subset.epoch(0)) rows += batch.x.dim(0);
  CHECK(rows == 2);
  for (const auto& batch : loader.epoch(0)) {  // stopped early: running reads must not outlive their memory
    CHECK(batch.x.dim(0) == 2);
    break;
  }
  CHECK(loader.batch(1, 3).y.data<float>()[0] == static_cast<float>(orders[1][6]));

  const auto split = data::split_train_test(20, 0.2, 4), again = data::split_train_test(20, 0.2, 4);
  CHECK((split.train.size() == 16 && split.test.size() == 4 && split.test == again.test));
  auto all = split.train;
  all.insert(all.end(), split.test.begin(), split.test.end());
  std::sort(all.begin(), all.end());
  for (std::int64_t i = 0; i < 20; ++i) CHECK(all[static_cast<std::size_t>(i)] == i);
  CHECK(data::split_train_test(20, 0.2, 5).test != split.test);
}

TEST_CASE("data: layouts of batches") {
  if (without_hdf5("data: layouts of batches")) return;
  run_threads(4, [](std::shared_ptr<Transport> transport) {
    const auto grid = make_grid(Communicator(transport), {.sample = 2, .depth = 2});
    const data::Loader loader(example(), {.grid = grid, .batch = 4});
    require(*loader.layout() == *activation_layout(grid, {4, 5, 6, 7, channels}), "[test] x");
    require(loader.target_layout()->global == Shape{4, 4} && loader.target_layout()->axis_of(0) == 0, "[test] y");
    std::vector<std::int64_t> n;
    for (const auto& [x, y] : loader.epoch(0)) {
      n.push_back(x.layout()->global[0]);
      require(x.shape() == x.layout()->box().extents() && y.shape() == y.layout()->box().extents(), "[test] local shapes");
    }
    require(n == std::vector<std::int64_t>{4, 3}, "[test] sizes of batches");
    const auto message =
        error_text([&] { data::Loader(example(), {.grid = make_grid(Communicator(transport), {.depth = 4}), .batch = 0}); });
    require(has(message, "at least one sample"), "[test] {}", message);
  });
  run_threads(6, [](std::shared_ptr<Transport> transport) {
    const auto grid = make_grid(Communicator(transport), {.depth = 6});
    const auto message = error_text([&] { data::Loader(example(), {.grid = grid}); });
    require(has(message, "6 ranks along depth for 5 planes"), "[test] {}", message);
  });
}

TEST_CASE("data: files that are wrong") {
  if (without_hdf5("data: files that are wrong")) return;
  const Folder folder;
  const auto& path = folder.path;
  const auto open = [](const fs::path& file) { return error_text([&] { data::UniverseSource(file).check(0, 1); }); };
  CHECK(has(open(path / "missing"), "no such file or folder"));
  CHECK(has(open(path), "no universes (*.hdf5, *.h5) in this folder"));
  std::ofstream(path / "text.h5") << "this is not HDF5";
  CHECK(has(open(path), "text.h5: not an HDF5 file"));
  fs::remove(path / "text.h5");

  write_universe(path / "a.hdf5", 0, {4, 4, 4, 2});
  CHECK(open(path).empty());
  write_universe(path / "b.hdf5", 1, {4, 4, 5, 2});
  CHECK(has(open(path), "b.hdf5: 'full' is [4, 4, 5, 2]; in"));
  fs::remove(path / "b.hdf5");
  write_universe(path / "b.hdf5", 1, {4, 4, 4, 2});
  fs::resize_file(path / "b.hdf5", fs::file_size(path / "b.hdf5") / 2);
  CHECK(has(open(path), "b.hdf5"));
  CHECK(has(open(path), "truncated"));
  const data::Loader loader(path, {.batch = 1});
  CHECK(has(error_text([&] {
              for (const auto& batch : loader.epoch(0)) (void)batch;
            }),
            "truncated"));
  fs::remove(path / "b.hdf5");

  const auto write = [&](const char* name, const Shape& shape, DType type, std::int64_t targets, double value) {
    Hdf5Writer writer(path / name, false);
    const std::vector<double> data(static_cast<std::size_t>(shape.elements()), value);
    writer.create("full", shape, type);
    std::vector<std::int64_t> begin(static_cast<std::size_t>(shape.rank()), 0);
    writer.write_box("full", begin, shape.span(), DType::float64, data.data());
    if (targets > 0) writer.write<float>("unitPar", std::vector<float>(static_cast<std::size_t>(targets), 0.5F));
    writer.commit();
    const auto message = open(path);
    if (message.empty()) return error_text([&] { (void)data::Loader(path / name, {}).batch(0, 0); });
    fs::remove(path / name);
    return message;
  };
  CHECK(has(write("c.h5", {4, 4, 4, 2}, DType::float32, 4, 0), "'full' holds float32, not counts"));
  CHECK(has(write("c.h5", {4, 4, 4, 2}, DType::int32, 4, 0), "'full' is int32; in"));
  CHECK(has(write("c.h5", {4, 4, 4}, DType::int16, 4, 0), "'full' is [D, H, W, C], this is [4, 4, 4]"));
  CHECK(has(write("c.h5", {4, 4, 4, 2}, DType::int16, 3, 0), "'unitPar' has 3 values"));
  CHECK(has(write("c.h5", {4, 4, 4, 2}, DType::int16, 0, 0), "no dataset 'unitPar'"));
  CHECK(has(write("c.h5", {4, 4, 4, 2}, DType::int16, 4, -3), "c.h5: log(1 + x) is for counts, but a value is -3"));

  CHECK(has(error_text([&] { data::Loader(example(), {.samples = {7}}); }), "sample 7 of 7"));
  CHECK(has(error_text([&] { data::Loader(example(), {.batch = 8, .drop_last = true}); }), "7 samples make no batch of 8"));
  CHECK(has(error_text([&] { data::Loader(example(), {.transpositions = true}); }), "transpositions need cubes"));
  CHECK(has(error_text([&] { data::Loader(example(), {.target_dtype = DType::int64}); }), "not classes"));
  CHECK(has(error_text([&] { data::Loader(example(), {.dtype = DType::bfloat16}); }), "float64, not bfloat16: cast them"));
}

TEST_CASE("data: volumes with labels in one file") {
  if (without_hdf5("data: volumes with labels in one file")) return;
  const Folder folder;
  const auto path = folder.path / "shapes.h5";
  {
    std::vector<std::uint8_t> volumes(3 * 2 * 2 * 2);
    for (std::size_t i = 0; i < volumes.size(); ++i) volumes[i] = static_cast<std::uint8_t>(10 * i);
    Hdf5Writer writer(path, false);
    writer.write("train/volume", {3, 2, 2, 2, 1}, DType::uint8, volumes.data());
    writer.write<std::uint8_t>("train/label", std::vector<std::uint8_t>{1, 0, 1});
    writer.write<std::uint8_t>("short/label", std::vector<std::uint8_t>{1, 0});
    writer.write("short/volume", {3, 2, 2, 2, 1}, DType::uint8, volumes.data());
    writer.commit();
  }
  const auto source = std::make_shared<data::ArraySource>(path, "train");
  const auto classes = data::Loader(source, {.batch = 3}).batch(0, 0);
  CHECK(classes.y.type() == TensorType{{3}, DType::int64});
  CHECK(classes.y.to_vector() == std::vector<double>{1, 0, 1});
  CHECK(classes.x.data<float>()[23] == static_cast<float>(230 / 255.0));
  const auto numbers = data::Loader(source, {.batch = 2, .target_dtype = DType::float32, .samples = {1, 2}}).batch(0, 0);
  CHECK(numbers.y.type() == TensorType{{2, 1}, DType::float32});
  CHECK(has(error_text([&] { data::ArraySource(path, "short"); }), "one label, or a row of them, for each of the 3 volumes"));
  CHECK(has(error_text([&] { data::ArraySource(path, "test"); }), "no dataset 'test/volume'"));
}

TEST_CASE("data: real adrenal glands, in slabs") {
  const char* name = "data: real adrenal glands, in slabs";
  if (without_hdf5(name)) return;
  const auto path = testing::shared_data("3d/adrenalmnist3d/adrenal28.h5");
  if (path.empty()) return testing::skip_test(name, testing::no_shared_data);
  const data::ArraySource all(path, "val");
  CHECK(all.size() == 98);
  CHECK(all.extents() == Shape{28, 28, 28});
  const data::LoaderOptions options{.batch = 5, .seed = 2, .shuffle = true, .flips = true, .samples = {0, 3, 5, 7, 11, 13}};
  std::vector<Tensor> expected;
  for (const auto& batch : data::Loader(std::make_shared<data::ArraySource>(path, "val"), options).epoch(0))
    expected.push_back(batch.x);
  run_threads(2, [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), {.depth = 2});
    std::size_t step = 0;
    for (auto [x, y] : data::Loader(std::make_shared<data::ArraySource>(path, "val"), mine).epoch(0)) {
      require(gather_all(x).to_vector() == expected[step++].to_vector(), "[test] slabs differ from whole volumes");
      for (const double label : y.to_vector()) require(label == 0 || label == 1, "[test] label {}", label);
    }
    require(step == 2, "[test] {} steps", step);
  });
}
