// Any source packed as HDF5, and read again.

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "models/data/data.h"
#include "models/data/sources/open.h"
#include "models/data/sources/pack.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::vector<double> values_of(const Source& source, std::int64_t sample) { return source.values(sample, source.whole()); }

std::string open_error(const fs::path& path, const OpenOptions& options = {}) {
  return error_text([&] { open_source(path, options)->check(0, 1); });
}

void check_equal(const Source& a, const Source& b) {
  REQUIRE(a.size() == b.size());
  CHECK(a.extents() == b.extents());
  CHECK(a.channels() == b.channels());
  CHECK(a.type() == b.type());
  CHECK(a.transform() == b.transform());
  CHECK(a.target_names() == b.target_names());
  CHECK(a.target_type() == b.target_type());
  for (std::int64_t i = 0; i < a.size(); ++i) {
    CHECK(values_of(a, i) == values_of(b, i));
    CHECK(a.targets(i) == b.targets(i));
  }
}

}  // namespace

TEST_CASE("sources: packing keeps everything") {
  if (without_hdf5("sources: packing keeps everything")) return;
  const Folder folder;
  const Bytes3 images{7, 2, 4};
  write_file(folder / "t-images-idx3-ubyte", idx_file(0x08, {7, 2, 4}, images.bytes()));
  write_file(folder / "t-alphabet-idx1-ubyte", idx_file(0x08, {7}, {7, 8, 9, 1, 2, 3, 4}));
  write_file(folder / "t-letter-idx1-ubyte", idx_file(0x08, {7}, {0, 1, 2, 3, 4, 5, 6}));
  const auto source = open_source(folder / "t-images-idx3-ubyte");
  pack(*source, folder / "one.h5");
  check_equal(*source, *open_source(folder / "one.h5"));
  std::vector<std::int64_t> steps;
  pack(*source, folder / "many", {.samples_per_file = 3, .progress = [&](std::int64_t done) { steps.push_back(done); }});
  CHECK(steps == std::vector<std::int64_t>{3, 6, 7});
  CHECK(std::distance(fs::directory_iterator(folder / "many"), fs::directory_iterator()) == 3);
  const auto shards = open_source(folder / "many");
  check_equal(*source, *shards);
  CHECK(has(shards->name_of_sample(4), "shard_00001.h5: 'volume' [1]"));
  const LoaderOptions options{.batch = 3, .seed = 5, .shuffle = true};
  CHECK(Loader(shards, options).batch(0, 1).x.to_vector() == Loader(source, options).batch(0, 1).x.to_vector());

  for (const auto& [first, samples] : {std::pair(-1, 4), {4, 4}, {0, -4}}) {
    Hdf5Writer writer(folder / "part.h5", true);
    writer.write("volume", {2, 1, 1, 1, 1}, DType::float32, std::vector<float>{1, 2}.data());
    writer.attribute("volume", "first", std::int64_t{first}), writer.attribute("volume", "samples", std::int64_t{samples});
    writer.commit();
    CHECK(has(error_text([&] { open_source(folder / "part.h5"); }),
              fmt::format("begins with sample {} of {}, which is not possible", first, samples)));
  }

  // Volumes that are not bytes, without labels and with one label.
  write_file(folder / "v.npy", npy_file("'<f4'", "(2, 1, 2, 1, 2)", std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8.5F}));
  const auto volumes = open_source(folder / "v.npy");
  pack(*volumes, folder / "v.h5");
  check_equal(*volumes, *open_source(folder / "v.h5"));
  write_file(folder / "labels.npy", npy_file("'<i8'", "(2,)", std::vector<std::int64_t>{5, 6}));
  const auto labelled = open_source(folder / "v.npy", {.labels = {{"kind", folder / "labels.npy"}}});
  pack(*labelled, folder / "l.h5");
  check_equal(*labelled, *open_source(folder / "l.h5"));

  // Samples with names and an order of their own; samples outside groups are left out.
  steps.clear();
  const PackOptions grouped{.groups = {{"train", {6, 0, 3}}, {"val", {5}}},
                            .progress = [&](std::int64_t done) { steps.push_back(done); }};
  pack(*source, folder / "groups.h5", grouped);
  CHECK(steps == std::vector<std::int64_t>{3, 4});
  for (const auto& group : grouped.groups) {
    const auto part = open_source(folder / "groups.h5", {.group = group.name});
    REQUIRE(part->size() == static_cast<std::int64_t>(group.samples.size()));
    CHECK(part->sample_type().targets == source->sample_type().targets);
    CHECK(part->transform() == source->transform());
    for (std::int64_t i = 0; i < part->size(); ++i) {
      const auto sample = group.samples[static_cast<std::size_t>(i)];
      CHECK(values_of(*part, i) == values_of(*source, sample));
      CHECK(part->targets(i) == source->targets(sample));
    }
  }
  const auto alone = open_source(folder / "groups.h5", {.group = "val", .targets = false});
  CHECK(alone->target_type() == TargetType{});
  CHECK(values_of(*alone, 0) == values_of(*source, 5));
  const auto group_error = [&](std::vector<PackGroup> groups, std::int64_t each = 0) {
    return error_text([&] { pack(*source, folder / "no.h5", {.samples_per_file = each, .groups = std::move(groups)}); });
  };
  CHECK(has(group_error({{"a", {0}}}, 2), "groups need one file"));
  CHECK(has(group_error({{"a", {0}}, {"a", {1}}}), "two groups are called 'a'"));
  CHECK(has(group_error({{"a", {}}}), "'a' has no samples"));
  CHECK(has(group_error({{"a/b", {0}}}), "'a/b' is not a valid group name"));
  CHECK(has(group_error({{"a", {0, 7}}}), "7"));
  CHECK(!fs::exists(folder / "no.h5"));

  // Existing files are not replaced, and no partial files remain.
  CHECK(has(error_text([&] { pack(*source, folder / "one.h5"); }), "one.h5: exists already"));
  CHECK(has(error_text([&] { pack(*source, folder / "many", {.samples_per_file = 3}); }), "many: exists already"));
  CHECK(has(error_text([&] { pack(*source, folder / "no/where.h5"); }), "there is no folder"));
  const auto before = folder.files();
  fs::create_directory(folder / "next.part");
  CHECK(has(error_text([&] { pack(*source, folder / "next", {.samples_per_file = 3}); }), "is in the way"));
  fs::remove(folder / "next.part");
  CHECK(folder.files() == before);
  CHECK(has(open_error(folder / "one.h5", {.extents = {1, 2}}), "keep their extents"));

  // Shards that do not belong together.
  fs::copy_file(folder / "l.h5", folder / "many/w.h5");
  CHECK(has(open_error(folder / "many"), "w.h5: volumes are [1, 2, 1, 2]; in"));
}

TEST_CASE("sources: a full disk leaves nothing under the name") {
  if (without_hdf5("sources: a full disk leaves nothing under the name")) return;
  const Folder folder;
  write_file(folder / "v.npy", npy_file("'<f4'", "(4, 64, 64)", std::vector<float>(4 * 64 * 64, 1)));
  const auto source = open_source(folder / "v.npy");
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, old{};
  getrlimit(RLIMIT_FSIZE, &old);
  limit = old;
  limit.rlim_cur = 30000;  // a limit on the file size, like a full disk
  setrlimit(RLIMIT_FSIZE, &limit);
  const auto one = error_text([&] { pack(*source, folder / "one.h5"); });
  const auto many = error_text([&] { pack(*source, folder / "many", {.samples_per_file = 3}); });
  const auto groups = error_text([&] { pack(*source, folder / "g.h5", {.groups = {{"train", {0, 1, 2}}, {"val", {3}}}}); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, previous);
  CHECK(has(one, "one.h5"));
  CHECK(has(many, "shard_00000.h5"));
  CHECK(has(groups, "g.h5"));
  CHECK(folder.files() == 1);
}
