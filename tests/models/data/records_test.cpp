// TFRecord files of volumes, and volumes with labels in NumPy's files, as in MLPerf's benchmarks.

#include <doctest/doctest.h>

#include <fstream>

#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/records/crc32c.h"
#include "models/data/records/example.h"
#include "models/data/records/files.h"
#include "models/data/records/frames.h"
#include "models/data/records/source.h"
#include "models/data/sources/open.h"
#include "models/data/volumes/npy_pairs.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::int16_t count(std::int64_t s, std::int64_t cell) {
  return static_cast<std::int16_t>(Philox{3, static_cast<std::uint64_t>(s)}.below(static_cast<std::uint64_t>(cell), 700));
}

// [n, n, n, 4] of sample s.
std::string volume(std::int64_t s, std::int64_t n = 3) {
  std::string bytes;
  for (std::int64_t i = 0; i < n * n * n * 4; ++i) {
    const auto value = count(s, i);
    bytes.push_back(static_cast<char>(value & 0xff)), bytes.push_back(static_cast<char>(value >> 8));
  }
  return bytes;
}

std::string record(std::int64_t s, std::int64_t n = 3) {
  const auto t = static_cast<float>(s);
  return framed(example_record("x", volume(s, n), "y", {t, t + 0.25F, t + 0.5F, -t}));
}

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

bool without_protobuf(const char* name) {
  if (!examples_available()) skip_test(name, "this build has no protobuf");
  return !examples_available();
}

}  // namespace

TEST_CASE("records: the processor's checksums are those of the table") {
  CHECK(crc32c("123456789") == 0xe3069283U);  // RFC 3720, appendix B.4
  std::string text;
  for (int i = 0; i < 300; ++i) {
    CHECK(crc32c(text) == crc32c_by_table(text));
    const std::string_view all = text;
    const auto first = all.substr(0, static_cast<std::size_t>(i * 7 % (i + 1))), rest = all.substr(first.size());
    CHECK(crc32c(rest, crc32c(first)) == crc32c(text));
    CHECK(crc32c_by_table(rest, crc32c_by_table(first)) == crc32c(text));
    text.push_back(static_cast<char>(i * 37));
  }
}

TEST_CASE("records: MLPerf's CosmoFlow files, one record in each or several, packed or not") {
  if (without_protobuf("records: MLPerf's CosmoFlow files")) return;
  const Folder one, several;
  for (std::int64_t s = 0; s < 5; ++s) {
    const auto bytes = bytes_of(record(s));
    const bool packed = s % 2 == 1 && gzip_available();
    write_file(one.path / fmt::format("univ_{}.tfrecord{}", s, packed ? ".gz" : ""), packed ? gzip(bytes) : bytes);
  }
  std::ofstream(one.path / "notes.txt") << "not a record";
  write_file(several / "a.tfrecord", bytes_of(record(0) + record(1)));
  write_file(several / "b.tfrecords", bytes_of(record(2) + record(3) + record(4)));
  for (const auto& folder : {one.path, several.path}) {
    const auto source = open_source(folder);
    REQUIRE(source->size() == 5);
    CHECK(source->extents() == Shape{3, 3, 3});
    CHECK(source->channels() == 4);
    CHECK(source->type() == DType::int16);
    CHECK(source->transform() == Transform::log1p);
    CHECK(source->target_names() == std::vector<std::string>{"Omega_m", "sigma_8", "n_s", "H_0"});
    source->check(0, 1);
    for (const std::int64_t s : {4, 0, 3, 1, 2, 2}) {
      CHECK(source->targets(s) == std::vector<double>{double(s), double(s) + 0.25, double(s) + 0.5, -double(s)});
      const auto box = source->values(s, {{1, 0, 2}, {3, 2, 3}});
      CHECK(box.size() == 2 * 2 * 1 * 4);
      CHECK(box.front() == count(s, (1 * 9 + 0 * 3 + 2) * 4));
      CHECK(box.back() == count(s, (2 * 9 + 1 * 3 + 2) * 4 + 3));
    }
    const Loader loader(source, {.batch = 5, .cache_bytes = 0});
    const auto batch = loader.batch(0, 0);
    CHECK(batch.x.to_vector()[7] == doctest::Approx(std::log1p(count(0, 7))));
    CHECK(batch.y.to_vector()[4] == 1);
  }
  CHECK(RecordSource(one.path, {.targets = ""}).target_type() == TargetType{});
  // Counts beyond int16.
  std::string large;
  for (const unsigned n : {1U, 32768U, 40000U, 65535U})
    large.push_back(static_cast<char>(n & 0xff)), large.push_back(static_cast<char>(n >> 8));
  write_file(several / "u.tfrecord", bytes_of(framed(example_record("x", large, "y", {1, 2, 3, 4}))));
  const auto counts = std::make_shared<RecordSource>(several / "u.tfrecord", RecordOptions{.type = DType::uint16});
  CHECK(counts->type() == DType::uint16);
  CHECK(counts->values(0, counts->whole()) == std::vector<double>{1, 32768, 40000, 65535});
  const auto numbers = Loader(counts, {.batch = 1, .dtype = DType::float64}).batch(0, 0).x.to_vector();
  REQUIRE(numbers.size() == 4);
  CHECK(numbers[2] == doctest::Approx(std::log1p(40000.0)));
  CHECK(numbers[3] == doctest::Approx(std::log1p(65535.0)));
  CHECK(RecordSource(one.path, {.extents = {3, 1, 9}}).extents() == Shape{3, 1, 9});
}

TEST_CASE("records: what is wrong is an error with the file") {
  if (without_protobuf("records: errors")) return;
  const Folder folder;
  const auto file = folder / "u.tfrecord";
  const auto good = record(1);
  const auto refused = [&](const std::string& bytes, const RecordOptions& options = {}) {
    write_file(file, bytes_of(bytes));
    return error_text([&] {
      const RecordSource source(file, options);
      for (std::int64_t s = 0; s < source.size(); ++s) (void)source.values(s, source.whole());
    });
  };
  CHECK(refused(good).empty());
  CHECK(has(refused(""), "u.tfrecord: no records"));
  CHECK(has(refused("this is not a TFRecord file"), "not a TFRecord file, or damaged"));
  CHECK(has(refused(good.substr(0, 7)), "ends in a frame"));
  for (const std::size_t cut : {13U, 100U}) CHECK(has(refused(good.substr(0, cut)), "u.tfrecord: truncated"));
  CHECK(has(refused(good.substr(0, good.size() - 1)), "truncated"));
  auto damaged = good;
  damaged[50] = static_cast<char>(damaged[50] ^ 4);
  CHECK(has(refused(damaged), "the checksum of a record is wrong"));
  CHECK(has(refused(framed("no message \xff\xff")), "not a tf.train.Example"));
  CHECK(has(refused(good, {.volume = "volume"}), "has no 'volume'; it has: x, y"));
  CHECK(has(refused(good, {.volume = "y"}), "'y' is not one string of bytes"));
  CHECK(has(refused(good, {.targets = "x"}), "'x' is not a list of numbers"));
  CHECK(has(refused(good, {.channels = 5}), "not a cube of 5 channels of int16"));
  CHECK(has(refused(good, {.extents = {2, 2, 2}}), "'x' has 216 bytes, [2, 2, 2, 4] of int16 are 64"));
  CHECK(has(refused(good + record(2, 2)), "'x' has 64 bytes"));
  write_file(folder / "v.tfrecord", bytes_of(good + good));
  write_file(file, bytes_of(good));
  const RecordSource two(folder.path);
  CHECK(has(error_text([&] { (void)two.values(1, two.whole()); }), "v.tfrecord: more than 1 records"));
  write_file(folder / "v.tfrecord", bytes_of("damaged, and long enough"));
  CHECK(has(error_text([&] { two.check(0, 1); }), "v.tfrecord: not a TFRecord file"));
  if (gzip_available()) {
    // 64 MiB of zeros after a record that claims them: the checksum of its length is right, but no memory may be allocated.
    auto claim = std::string(8, '\0');
    claim[5] = 127;
    const auto length = masked_crc32c(claim);
    for (int i = 0; i < 4; ++i) claim.push_back(static_cast<char>(length >> (8 * i)));
    const auto packed = gzip(bytes_of(claim));
    write_file(folder / "w.tfrecord.gz", packed);
    CHECK(has(error_text([&] { RecordSource(folder / "w.tfrecord.gz"); }), "w.tfrecord.gz: truncated"));
  }
}

TEST_CASE("records: of many in one file each is read by itself") {
  if (without_protobuf("records: of many in one file each is read by itself")) return;
  const Folder folder;
  constexpr std::int64_t all_records = 150, side = 12;  // records of 14 KB
  std::string all;
  for (std::int64_t s = 0; s < all_records; ++s) all += record(s, side);
  for (const bool packed : {false, true}) {
    if (packed && !gzip_available()) continue;
    INFO((packed ? "packed" : "plain"));
    const auto path = folder / (packed ? "p.tfrecord.gz" : "p.tfrecord");
    write_file(path, packed ? gzip(bytes_of(all)) : bytes_of(all));
    const auto size = static_cast<std::int64_t>(fs::file_size(path));
    const auto start = bytes_read();
    const RecordSource source(path, {.threads = 1});
    REQUIRE(source.size() == all_records);
    CHECK(source.name_of_sample(7) == path.string() + " [7]");
    const auto looked_through = bytes_read();
    // A plain file is read only where records begin, one buffer each.
    if (start >= 0) CHECK(looked_through - start < (packed ? size + size / 4 : all_records * 10000));
    const auto check = [&](std::int64_t s) {
      CHECK(source.targets(s) == std::vector<double>{double(s), double(s) + 0.25, double(s) + 0.5, -double(s)});
      CHECK(source.values(s, {{1, 0, 2}, {2, 1, 3}})[1] == count(s, (1 * side * side + 2) * 4 + 1));
    };
    for (std::int64_t s = 0; s < all_records; ++s) check(s);
    const auto in_order = bytes_read();
    if (start >= 0) CHECK(in_order - looked_through < size + size / 4);
    for (std::int64_t s = 0; s < 20; ++s) check((s * 67 + 140) % all_records);
    // In a packed file at most an interval of 1 MiB is read before a record.
    if (start >= 0) CHECK(bytes_read() - in_order < 20 * (packed ? size * 6 / 10 : 30000));
  }
}

TEST_CASE("records: packed files with fewer marks than they might have") {
  if (!gzip_available()) return skip_test("records: packed files with fewer marks", "this build has no zlib");
  const Folder folder;
  const auto text = [](std::int64_t i) { return std::string(static_cast<std::size_t>(i * 37 % 90), 'a') + std::to_string(i); };
  std::vector<fs::path> files;
  for (std::int64_t f = 0; f < 3; ++f) {
    std::string all;
    for (std::int64_t i = 0; i < 100; ++i) all += framed(text(f * 100 + i));
    files.push_back(folder.path / fmt::format("{}.gz", f));
    write_file(files.back(), gzip(bytes_of(all)));
  }
  RecordFiles records(files, 2, {.interval = 64, .most = 10});
  REQUIRE(records.size() == 300);
  std::string read;
  for (std::int64_t i = 0; i < 300; ++i) {
    const auto record = i * 89 % 300;
    records.read(record, read);
    CHECK(read == text(record));
  }
  CHECK(records.marks() <= 10);
  CHECK(records.marks() >= 4);
}

TEST_CASE("records: files of a set that has its number in their names") {
  if (without_protobuf("records: files of a set that has its number in their names")) return;
  const Folder folder;
  for (std::int64_t f = 0; f < 3; ++f)
    write_file(folder.path / fmt::format("train.tfrecord-{:05}-of-00003", f), bytes_of(record(2 * f) + record(2 * f + 1)));
  if (gzip_available()) write_file(folder / "more.tfrecords-00000-of-00001.gz", gzip(bytes_of(record(9) + record(8))));
  const auto more = gzip_available() ? 2 : 0;
  const auto source = open_source(folder.path);
  REQUIRE(source->size() == 6 + more);
  CHECK(source->targets(more + 5)[0] == 5);
  CHECK(open_source(folder / "train.tfrecord-00001-of-00003")->targets(0)[0] == 2);
  for (const auto* name :
       {"model.tfrecord--1-of-0-2", "model.tfrecord--1-of-2", "model.tfrecord-0-of--2", "model.tfrecord-0-of-0"}) {
    write_file(folder / name, bytes_of(record(0)));
    CHECK(has(error_text([&] { open_source(folder.path); }), "its name has numbers that are impossible for a part of a set"));
    fs::remove(folder / name);
  }
  fs::remove(folder / "train.tfrecord-00001-of-00003");
  CHECK(has(error_text([&] { open_source(folder.path); }),
            "2 of the 3 files train.tfrecord-*-of-00003 exist; number 1 is missing"));
}

TEST_CASE("records: volumes beside labels in NumPy's files, of which boxes are read") {
  const Folder folder;
  const auto write = [&](const std::string& name, const std::vector<std::int64_t>& shape, int channels) {
    std::vector<float> values;
    std::vector<std::uint8_t> labels;
    const auto cells = shape[0] * shape[1] * shape[2];
    for (std::int64_t i = 0; i < channels * cells; ++i) values.push_back(static_cast<float>(count(shape[0], i)));
    for (std::int64_t i = 0; i < cells; ++i) labels.push_back(static_cast<std::uint8_t>(i % 3));
    write_file(folder.path / (name + "_x.npy"),
               npy_file("'<f4'", fmt::format("({}, {}, {}, {})", channels, shape[0], shape[1], shape[2]), values));
    write_file(folder.path / (name + "_y.npy"),
               npy_file("'|u1'", fmt::format("(1, {}, {}, {})", shape[0], shape[1], shape[2]), labels));
  };
  for (const int channels : {1, 2}) {
    write("case_00000", {4, 5, 6}, channels), write("case_00001", {3, 6, 5}, channels);
    const auto source = open_source(folder.path);
    REQUIRE(source->size() == 2);
    CHECK(source->extents() == Shape{4, 6, 6});
    CHECK(source->extents_of(1) == Shape{3, 6, 5});
    CHECK(source->channels() == channels);
    CHECK(source->type() == DType::float32);
    CHECK(source->target_type().per_cell);
    for (std::int64_t s = 0; s < 2; ++s) {
      const auto e = source->extents_of(s);
      for (const auto& box : {Box{{0, 0, 0}, e}, Box{{1, 0, 0}, {3, e[1], e[2]}}, Box{{1, 2, 1}, {3, 4, 5}},
                              Box{{2, 0, 3}, {3, e[1], 4}}, Box{{1, 1, 1}, {1, 2, 2}}}) {
        std::vector<double> expected;
        std::vector<std::uint8_t> labels, read(static_cast<std::size_t>(box.elements()));
        for (auto d = box.begin[0]; d < box.end[0]; ++d)
          for (auto h = box.begin[1]; h < box.end[1]; ++h)
            for (auto w = box.begin[2]; w < box.end[2]; ++w) {
              const auto cell = (d * e[1] + h) * e[2] + w;
              for (int c = 0; c < channels; ++c) expected.push_back(count(e[0], c * e.elements() + cell));
              labels.push_back(static_cast<std::uint8_t>(cell % 3));
            }
        CHECK(source->values(s, box) == expected);
        source->read_targets(s, box, reinterpret_cast<std::byte*>(read.data()));
        CHECK(read == labels);
      }
    }
    const Loader loader(source, {.batch = 2, .flips = true, .crop = Crop{.extents = {3, 4, 4}, .foreground = 0.5}});
    CHECK(loader.batch(0, 0).x.shape() == Shape{2, 3, 4, 4, channels});
  }
  const auto refused = [&] { return error_text([&] { NpyPairs source(folder.path); }); };
  CHECK(refused().empty());
  fs::resize_file(folder / "case_00001_x.npy", fs::file_size(folder / "case_00001_x.npy") - 1);
  CHECK(has(refused(), "case_00001_x.npy: truncated"));
  write("case_00001", {3, 6, 5}, 1);
  CHECK(has(refused(), "case_00001_x.npy has 1 channels of float32"));
  write("case_00001", {3, 6, 5}, 2);
  write_file(folder / "case_00001_y.npy", npy_file("'|u1'", "(3, 6, 6)", std::vector<std::uint8_t>(108)));
  CHECK(has(refused(), "labels need one number for each cell"));
  write_file(folder / "case_00001_y.npy", npy_file("'<f4'", "(3, 6, 5)", std::vector<float>(90)));
  CHECK(has(refused(), "case_00001_y.npy is float32"));
  fs::remove(folder / "case_00001_y.npy");
  CHECK(has(refused(), "case_00001_y.npy: no such file"));
  CHECK(NpyPairs(folder.path, {.label = ""}).target_type() == TargetType{});
}
