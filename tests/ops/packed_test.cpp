// Folders of packed samples with a missing part, and classes too large for float64.

#include <doctest/doctest.h>

#include "models/data/sources/memory.h"
#include "models/data/sources/open.h"
#include "models/data/sources/pack.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

// Samples of one byte, each with a class.
MemorySource source_of(const std::vector<std::int64_t>& classes) {
  const auto n = static_cast<std::int64_t>(classes.size());
  return {Samples{.file = "made", .count = n, .values = Bytes(classes.size())}, {Labels{.name = "kind", .values = classes}}};
}

std::string open_error(const fs::path& path) {
  return error_text([&] { open_source(path); });
}

}  // namespace

TEST_CASE("packed: a lost shard is noticed") {
  if (without_hdf5("packed: a lost shard is noticed")) return;
  const Folder folder;
  const auto source = source_of({0, 1, 2, 3, 4, 5, 6});
  pack(source, folder / "many", {.samples_per_file = 3});
  pack(source, folder / "one.h5");
  const auto many = folder / "many";
  fs::rename(many / "shard_00001.h5", folder / "away.h5");
  CHECK(has(open_error(many), "shard_00002.h5: begins with sample 6 of 7; the file that begins with sample 3 is missing"));
  fs::rename(many / "shard_00002.h5", folder / "last.h5");
  CHECK(has(open_error(many), "many: the files end after 3 of 7 samples"));
  CHECK(open_source(folder / "away.h5")->size() == 3);  // asked for by name
  fs::rename(folder / "away.h5", many / "shard_00001.h5");
  fs::rename(folder / "last.h5", many / "shard_00002.h5");

  // Several sets in one folder are concatenated.
  fs::copy_file(folder / "one.h5", many / "shard_00003.h5");
  for (const int file : {0, 1, 2})
    fs::copy_file(many / fmt::format("shard_0000{}.h5", file), many / fmt::format("shard_0000{}.h5", file + 4));
  CHECK(open_source(many)->size() == 21);
  fs::rename(many / "shard_00003.h5", many / "shard_00001b.h5");
  CHECK(has(open_error(many), "shard_00001b.h5: begins with sample 0 of 7; the file that begins with sample 6 is missing"));
}

TEST_CASE("packed: classes that float64 would round to others") {
  if (without_hdf5("packed: classes that float64 would round to others")) return;
  const Folder folder;
  const std::int64_t large = std::int64_t{1} << 53;
  CHECK(source_of({1 - large, large - 1}).targets(0)[0] == static_cast<double>(1 - large));
  CHECK(has(error_text([&] { source_of({5, large + 1}); }), "made: the label 'kind' is 900719925474099"));
  Hdf5Writer writer(folder / "large.h5", false);
  const float cell = 0;
  writer.write("volume", {1, 1, 1, 1, 1}, DType::float32, &cell);
  const std::vector<std::int64_t> classes{-large - 1};
  writer.write<std::int64_t>("label", classes);
  writer.commit();
  CHECK(has(open_error(folder / "large.h5"), "large.h5: the label 'label' is -900719925474099"));
}
