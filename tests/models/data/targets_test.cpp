// Targets that are not one row of classes: numbers of any shape, and labels of cells, which are split, flipped and shifted with
// their sample; in memory, from a user's class and through HDF5.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_file.h"
#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/open.h"
#include "models/data/sources/pack.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t samples = 5;
const Shape cells{5, 4, 6};

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t key, double scale) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::floor(scale * Philox{.key = key}.uniform(i));
  return from_vector(shape, values, dtype);
}

// Volumes with numbered cells, with labels that are a function of those numbers.
Tensor volumes() {
  std::vector<double> values(static_cast<std::size_t>(samples * cells.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return from_vector({samples, 5, 4, 6, 1}, values);
}
double label_of(double cell) { return std::fmod(7 * cell + 3, 11); }
Tensor cell_labels() {
  auto values = volumes().to_vector();
  for (auto& value : values) value = label_of(value);
  return from_vector({samples, 5, 4, 6}, values, DType::uint8);
}

// The same data as a user's class.
class Labelled : public Source {
 public:
  std::int64_t size() const override { return samples; }
  const SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    auto* to = reinterpret_cast<float*>(out);
    for_each(sample, box, [&](double cell) { *to++ = static_cast<float>(cell); });
  }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    for_each(sample, box, [&](double cell) { *out++ = static_cast<std::byte>(label_of(cell)); });
  }

 private:
  template <class F>
  static void for_each(std::int64_t sample, const Box& box, const F& f) {
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          f(static_cast<double>(((sample * cells[0] + d) * cells[1] + h) * cells[2] + w));
  }
  SampleType type_{.extents = cells, .targets = {.type = DType::uint8, .shape = {}, .per_cell = true}};
};

LoaderOptions moved() { return {.batch = 2, .seed = 3, .shuffle = true, .flips = true, .shifts = true}; }

// All batches of an epoch, gathered on every rank.
std::vector<std::vector<double>> batches(const SourcePtr& source, const LoaderOptions& options) {
  std::vector<std::vector<double>> result;
  for (const auto& [x, y] : Loader(source, options).epoch(1))
    for (const auto& part : {x, y}) result.push_back((part.layout() ? gather_all(part) : part).to_vector());
  return result;
}

void check_cells(const SourcePtr& source) {
  const auto expected = batches(source, moved());
  REQUIRE(expected.size() == 6);
  for (std::size_t i = 0; i < expected.size(); i += 2)
    for (std::size_t k = 0; k < expected[i].size(); ++k) REQUIRE(expected[i + 1][k] == label_of(expected[i][k]));
  const auto batch = Loader(source, moved()).batch(1, 0);
  CHECK(batch.y.type() == TensorType{{2, 5, 4, 6}, DType::uint8});
  auto wide = moved();
  wide.target_dtype = DType::float64;
  CHECK(Loader(source, wide).batch(1, 0).y.dtype() == DType::float64);
  CHECK(batches(source, wide) == expected);
  for (const auto& grid :
       std::vector<GridExtents>{{.depth = 2}, {.sample = 2, .width = 3}, {.depth = 2, .height = 2, .width = 2}}) {
    const int ranks = std::max(grid.sample, 1) * std::max(grid.depth, 1) * std::max(grid.height, 1) * std::max(grid.width, 1);
    on_ranks(ranks, [&](const Communicator& world) {
      auto mine = moved();
      mine.grid = make_grid(world, grid);
      require(batches(source, mine) == expected, "[test] rank {}: other batches", world.rank());
      mine.cache_bytes = 0;
      require(batches(source, mine) == expected, "[test] rank {}: other batches without a cache", world.rank());
    });
  }
}

}  // namespace

TEST_CASE("targets: numbers of any shape and type") {
  const auto x = volumes();
  const auto matrices = numbers({samples, 3, 2}, DType::float64, 1, 1000);
  const auto source = from_tensors(x, matrices);
  CHECK(source->target_names().empty());
  const auto batch = Loader(source, {.batch = 5, .dtype = DType::float64}).batch(0, 0);
  CHECK(batch.x.to_vector() == x.to_vector());
  CHECK(batch.y.shape() == Shape{5, 3, 2});
  CHECK(batch.y.to_vector() == matrices.to_vector());
  on_ranks(2, [&](const Communicator& world) {
    const Loader loader(source, {.grid = make_grid(world, {.sample = 2}), .batch = 5});
    const auto y = loader.batch(0, 0).y;
    require(y.layout()->global == Shape{5, 3, 2} && y.dim(0) == (world.rank() == 0 ? 3 : 2), "[test] {}", y);
  });

  const auto one = from_tensors(x, numbers({samples}, DType::float32, 2, 9));
  CHECK(one->target_names() == std::vector<std::string>{"target 0"});
  CHECK(Loader(one, {}).batch(0, 0).y.type() == TensorType{{1, 1}, DType::float32});
  const auto classes = from_tensors(x, numbers({samples}, DType::int32, 2, 9), {.target_names = {"kind"}});
  CHECK(classes->has_classes());
  CHECK(Loader(classes, {.batch = 2}).batch(0, 0).y.type() == TensorType{{2}, DType::int64});
  CHECK(classes->targets(3)[0] == numbers({samples}, DType::int32, 2, 9).to_vector()[3]);
  const auto rows = from_tensors(x, numbers({samples, 3}, DType::uint8, 2, 9));
  CHECK(Loader(rows, {.batch = 2}).batch(0, 0).y.type() == TensorType{{2, 3}, DType::int64});

  CHECK(has(error_text([&] { from_tensors(x, ones({4, 2})); }), "targets are [n, ...] of the volumes"));
  CHECK(has(error_text([&] { from_tensors(x, ones({samples, 5, 4, 5}), {.per_cell = true}); }), "[n, D, H, W, ...]"));
  CHECK(has(error_text([&] { from_tensors(ones({2, 3}), ones({2})); }), "samples are [n, D, H, W, C]"));
  CHECK(has(error_text([&] { from_tensors(cast(x, DType::float16), ones({samples})); }), "samples are tensors of the host"));
  CHECK(has(error_text([&] { from_tensors(x, ones({samples, 2}), {.target_names = {"one"}}); }), "1 names of targets"));
}

TEST_CASE("targets: labels of cells go where their cells go") {
  const auto source = from_tensors(volumes(), cell_labels(), {.per_cell = true});
  CHECK(has(error_text([&] { source->targets(0); }), "targets are volumes, not a row of numbers"));
  CHECK(has(error_text([&] { Loader(source, {.target_dtype = DType::int64}); }), "y must be uint8 or floating-point, not int64"));
  check_cells(source);
  check_cells(std::make_shared<Labelled>());
  // Several numbers for each cell.
  const auto fields = numbers({samples, 5, 4, 6, 3}, DType::float32, 5, 1e6);
  const auto batch = Loader(from_tensors(volumes(), fields, {.per_cell = true}), {.batch = 5}).batch(0, 0);
  CHECK(batch.y.shape() == Shape{5, 5, 4, 6, 3});
  CHECK(batch.y.to_vector() == fields.to_vector());
}

TEST_CASE("targets: labels of cells in HDF5") {
  if (without_hdf5("targets: labels of cells in HDF5")) return;
  const Folder folder;
  const auto source = from_tensors(volumes(), cell_labels(), {.per_cell = true});
  pack(*source, folder / "one.h5");
  pack(*source, folder / "many", {.samples_per_file = 2});
  for (const auto* name : {"one.h5", "many"}) {
    const auto packed = open_source(folder / name);
    CHECK(packed->target_type() == source->target_type());
    check_cells(packed);
  }
  Hdf5Writer writer(folder / "wrong.h5", false);
  writer.create("volume", {2, 3, 3, 3, 1}, DType::float32);
  writer.create("label", {2, 3, 3, 4}, DType::uint8);
  const std::vector<float> zeros_(54);
  const std::vector<std::uint8_t> labels(72);
  const std::vector<std::int64_t> from(5), to{2, 3, 3, 3, 1}, from4(4), to4{2, 3, 3, 4};
  writer.write_box("volume", from, to, DType::float32, zeros_.data());
  writer.write_box("label", from4, to4, DType::uint8, labels.data());
  writer.commit();
  CHECK(has(error_text([&] { open_source(folder / "wrong.h5"); }), "labels of cells are [n, D, H, W] or [n, D, H, W, K]"));
}

TEST_CASE("targets: a sample has at most 65,536 targets") {
  const Folder folder;
  const auto open_error = [](const std::filesystem::path& path, const OpenOptions& options = {}) {
    return error_text([&] { open_source(path, options); });
  };
  const auto refused = [](const std::string& text, const char* where) {
    CHECK_MESSAGE((has(text, where) && has(text, " targets for each sample, more than 65536")), text);
  };
  write_file(folder / "x.npy", npy_file("'|u1'", "(1, 1, 2)", std::vector<std::uint8_t>(2)));
  for (const int count : {65536, 65537}) {
    const auto labels = npy_file("'|u1'", fmt::format("(1, {})", count), std::vector<std::uint8_t>(count));
    write_file(folder / "y.npy", labels);
    const OpenOptions options{.labels = {{"y", folder / "y.npy"}}};
    if (count == 65536) CHECK(open_source(folder / "x.npy", options)->target_names().size() == 65536);
    else refused(open_error(folder / "x.npy", options), "y.npy: 'y': 65537");
    const OpenOptions two{.labels = {{"y", folder / "y.npy"}, {"z", folder / "y.npy"}}};
    refused(open_error(folder / "x.npy", two), count == 65536 ? "y.npy: 'z': 131072" : "y.npy: 'y': 65537");
  }
  if (without_hdf5("targets: 65,536 of a sample")) return;
  const std::vector<std::uint8_t> cell(1);
  const auto write = [&](const char* name, const char* volume, const Shape& shape, const char* label, const Shape& labels,
                         const std::vector<std::string>& names = {}) {
    Hdf5Writer writer(folder / name, true);
    writer.write(volume, shape, DType::uint8, cell.data());
    const std::vector<std::uint8_t> values(static_cast<std::size_t>(labels.elements()));
    writer.write(label, labels, DType::uint8, values.data());
    if (!names.empty()) writer.write_strings("label_names", names);
    writer.commit();
  };
  write("a.h5", "volume", {1, 1, 1, 1, 1}, "label", {1, 65537});
  refused(open_error(folder / "a.h5"), "a.h5: 'label': 65537");
  write("u.h5", "full", {1, 1, 1, 1}, "unitPar", {65537});
  refused(open_error(folder / "u.h5"), "u.h5: 'unitPar': 65537");
  for (const auto& names : {std::vector<std::string>{"a", "b"}, {"a", "b", "c"}}) {
    write("b.h5", "volume", {1, 1, 1, 1, 1}, "label", {1, 2}, names);
    CHECK(open_source(folder / "b.h5")->target_names() ==
          (names.size() == 2 ? names : std::vector<std::string>{"label 0", "label 1"}));
  }
}
