// Readers of every format, on files generated here and on real data.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "models/data/compressed/compressed.h"
#include "models/data/data.h"
#include "models/data/images/decode.h"
#include "models/data/sources/formats.h"
#include "models/data/sources/open.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/image_files.h"
#include "tests/support/shared_data.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::vector<double> values_of(const Source& source, std::int64_t sample) { return source.values(sample, source.whole()); }

std::string open_error(const fs::path& path, const OpenOptions& options = {}) {
  return error_text([&] { open_source(path, options)->check(0, 1); });
}

}  // namespace

TEST_CASE("sources: IDX") {
  const Folder folder;
  const Bytes3 images{3, 2, 4};
  write_file(folder / "t-images-idx3-ubyte", idx_file(0x08, {3, 2, 4}, images.bytes()));
  write_file(folder / "t-alphabet-idx1-ubyte", idx_file(0x08, {3}, {7, 8, 9}));
  write_file(folder / "t-letter-idx1-ubyte", idx_file(0x08, {3}, {0, 1, 200}));
  write_file(folder / "t-other-letter-idx1-ubyte", idx_file(0x08, {5}, {0, 1, 2, 3, 4}));
  const auto source = open_source(folder / "t-images-idx3-ubyte");
  CHECK(source->size() == 3);
  CHECK(source->extents() == Shape{1, 2, 4});
  CHECK(source->transform() == Transform::unit);
  CHECK(source->target_names() == std::vector<std::string>{"alphabet", "letter"});
  CHECK(source->targets(2) == std::vector<double>{9, 200});
  CHECK(values_of(*source, 1) == std::vector<double>{8, 9, 10, 11, 12, 13, 14, 15});
  const auto batch = Loader(source, {.batch = 2}).batch(0, 1);
  CHECK(batch.x.shape() == Shape{1, 1, 2, 4, 1});
  CHECK(batch.x.data<float>()[1] == static_cast<float>(17 / 255.0));
  CHECK(batch.y.type() == TensorType{{1, 2}, DType::int64});
  // A part of a picture, and given labels.
  CHECK(source->values(0, {{0, 1, 2}, {1, 2, 4}}) == std::vector<double>{6, 7});
  const auto given = open_source(folder / "t-images-idx3-ubyte", {.labels = {{"my", folder / "t-letter-idx1-ubyte"}}});
  CHECK(given->target_names() == std::vector<std::string>{"my"});
  const auto small = open_source(folder / "t-images-idx3-ubyte", {.extents = {1, 2}});
  CHECK(values_of(*small, 0) == std::vector<double>{3, 5});  // means 2.5 and 4.5 of four, as bytes

  // int16 and float64, big-endian; rank 4; gzip
  write_file(folder / "s-images-idx3-ubyte", idx_file(0x0B, {1, 1, 2}, {0xff, 0xfe, 0x01, 0x00}));
  CHECK(values_of(*open_source(folder / "s-images-idx3-ubyte"), 0) == std::vector<double>{-2, 256});
  write_file(folder / "d-images-idx4-double", idx_file(0x0E, {1, 1, 1, 1}, {0x3f, 0xf8, 0, 0, 0, 0, 0, 0}));
  CHECK(values_of(*open_source(folder / "d-images-idx4-double"), 0) == std::vector<double>{1.5});
  if (gzip_available()) {
    const auto plain = read_bytes(folder / "t-images-idx3-ubyte");
    auto packed = gzip(plain);
    fs::create_directory(folder / "z");
    write_file(folder / "z/t-images-idx3-ubyte.gz", packed);
    CHECK(values_of(*open_source(folder / "z/t-images-idx3-ubyte.gz"), 2) == values_of(*source, 2));
    packed.resize(packed.size() - 9);
    write_file(folder / "z/t-images-idx3-ubyte.gz", packed);
    CHECK(has(open_error(folder / "z/t-images-idx3-ubyte.gz"), "t-images-idx3-ubyte.gz: the file is truncated"));
    packed = gzip(plain);
    packed[packed.size() - 6] ^= std::byte{1};  // of the checksum
    write_file(folder / "z/t-images-idx3-ubyte.gz", packed);
    CHECK(has(open_error(folder / "z/t-images-idx3-ubyte.gz"), "the file is corrupt"));
    // Two gzip members are one file after the other.
    const auto half = plain.size() / 2;
    auto two = gzip({plain.data(), half});
    const auto rest = gzip({plain.data() + half, plain.size() - half});
    two.insert(two.end(), rest.begin(), rest.end());
    write_file(folder / "two.gz", two);
    CHECK(read_bytes(folder / "two.gz") == plain);
  }

  write_file(folder / "t-letter-idx1-ubyte", idx_file(0x08, {4}, {0, 1, 2, 3}));
  CHECK(has(open_error(folder / "t-images-idx3-ubyte"), "4 labels 'letter' for the 3 samples of"));
  write_file(folder / "u-images-idx3-ubyte", idx_file(0x08, {3, 2, 5}, images.bytes()));
  CHECK(has(open_error(folder / "u-images-idx3-ubyte"), "truncated: 24 bytes of elements, 30 make [3, 2, 5]"));
  write_file(folder / "u-images-idx3-ubyte", idx_file(0x08, {3, 2, 3}, images.bytes()));
  CHECK(has(open_error(folder / "u-images-idx3-ubyte"), "longer than it says"));
  write_file(folder / "u-images-idx3-ubyte", idx_file(0x07, {3, 2, 4}, images.bytes()));
  CHECK(has(open_error(folder / "u-images-idx3-ubyte"), "element type 0x07"));
  write_file(folder / "u-images-idx3-ubyte", {std::byte{0}, std::byte{0}, std::byte{8}, std::byte{3}, std::byte{0}});
  CHECK(has(open_error(folder / "u-images-idx3-ubyte"), "ends in its header"));
  write_file(folder / "words.txt", {std::byte{'x'}});
  CHECK(has(open_error(folder / "words.txt"), "words.txt: no known format"));
  CHECK(has(open_error(folder / "nowhere"), "nowhere: no such file or folder"));
  fs::create_directory(folder / "empty");
  CHECK(has(open_error(folder / "empty"), "nothing readable in this folder"));
}

TEST_CASE("sources: CIFAR") {
  const Folder folder;
  const auto record = [](std::vector<int> labels, int first) {
    Bytes bytes;
    for (const int label : labels) bytes.push_back(static_cast<std::byte>(label));
    for (int i = 0; i < 3072; ++i) bytes.push_back(static_cast<std::byte>((first + i / 1024 * 50 + i % 1024) % 256));
    return bytes;
  };
  const auto join = [](std::vector<Bytes> parts) {
    Bytes all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  write_file(folder / "data_batch_1.bin", join({record({3}, 0), record({5}, 1)}));
  write_file(folder / "data_batch_2.bin", record({7}, 2));
  write_file(folder / "test_batch.bin", record({1}, 9));
  const auto source = open_source(folder.path);
  CHECK(source->size() == 3);
  CHECK(source->extents() == Shape{1, 32, 32});
  CHECK(source->channels() == 3);
  CHECK(source->targets(2) == std::vector<double>{7});
  const auto values = values_of(*source, 1);  // red, green and blue of a pixel are adjacent
  CHECK(std::vector<double>(values.begin(), values.begin() + 6) == std::vector<double>{1, 51, 101, 2, 52, 102});
  CHECK(open_source(folder.path, {.group = "test"})->targets(0) == std::vector<double>{1});
  CHECK(open_source(folder / "data_batch_2.bin")->size() == 1);
  CHECK(has(open_error(folder.path, {.group = "other"}), "groups train and test"));

  const Folder hundred;
  write_file(hundred / "train.bin", join({record({3, 40}, 0), record({5, 99}, 1)}));
  CHECK(open_source(hundred.path)->target_names() == std::vector<std::string>{"coarse", "fine"});
  CHECK(open_source(hundred.path)->targets(1) == std::vector<double>{5, 99});
  CHECK(has(open_error(hundred.path, {.group = "test"}), "no files of the group test"));
  auto cut = record({1}, 0);
  cut.pop_back();
  write_file(hundred / "train.bin", cut);
  CHECK(has(open_error(hundred.path), "train.bin: 3072 bytes are not a whole number of records"));
}

TEST_CASE("sources: NumPy") {
  const Folder folder;
  const auto path = folder / "a.npy";
  const std::vector<float> values{0, 0.5F, 1, 1.5F, 2, 2.5F, 3, 3.5F, 4, 4.5F, 5, 5.5F};
  write_file(path, npy_file("'<f4'", "(2, 3, 2)", values));
  const auto source = open_source(path);
  CHECK(source->extents() == Shape{1, 3, 2});
  CHECK(source->type() == DType::float32);
  CHECK(source->target_names().empty());
  CHECK(source->targets(1).empty());
  CHECK(values_of(*source, 1) == std::vector<double>{3, 3.5, 4, 4.5, 5, 5.5});
  CHECK(Loader(source, {.batch = 2}).batch(0, 0).y.shape() == Shape{2, 0});
  for (const auto& [shape, extents, channels] : {std::tuple{"(1, 2, 2, 3)", Shape{1, 2, 2}, 3},
                                                 {"(1, 1, 2, 6)", Shape{1, 2, 6}, 1},
                                                 {"(1, 2, 2, 1, 3)", Shape{2, 2, 1}, 3},
                                                 {"(6, 1, 2)", Shape{1, 1, 2}, 1}}) {
    write_file(path, npy_file("'<f4'", shape, values));
    CHECK(open_source(path)->extents() == extents);
    CHECK(open_source(path)->channels() == channels);
  }
  // Versions 1 to 3, both byte orders, every kind of number.
  write_file(path, npy_file("'>i2'", "(1, 1, 2)", std::vector<std::uint8_t>{0xff, 0xfe, 0x01, 0x00}, 2));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{-2, 256});
  write_file(path, npy_file("'<u2'", "(1, 1, 2)", std::vector<std::uint16_t>{65535, 1}, 3));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{65535, 1});
  CHECK(open_source(path)->type() == DType::uint16);
  write_file(path, npy_file("'<u2'", "(1, 2, 2)", std::vector<std::uint16_t>{65535, 1, 65534, 2}));
  CHECK(values_of(*open_source(path, {.extents = {1, 1}}), 0) == std::vector<double>{32768});  // their mean
  write_file(path, npy_file("'>u2'", "(1, 1, 2)", std::vector<std::uint8_t>{0x80, 0x00, 0x01, 0x00}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{32768, 256});
  write_file(path, npy_file("'|i1'", "(1, 1, 2)", std::vector<std::int8_t>{-5, 5}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{-5, 5});
  write_file(path, npy_file("'<f2'", "(1, 1, 2)", std::vector<std::uint16_t>{0x3c00, 0xc000}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{1, -2});
  write_file(path, npy_file("'|b1'", "(1, 1, 2)", std::vector<std::uint8_t>{0, 1}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{0, 1});

  write_file(folder / "labels.npy", npy_file("'<i8'", "(1,)", std::vector<std::int64_t>{-4}));
  CHECK(open_source(path, {.labels = {{"kind", folder / "labels.npy"}}})->targets(0) == std::vector<double>{-4});
  write_file(folder / "labels.npy", npy_file("'<u2'", "(1,)", std::vector<std::uint16_t>{40000}));
  CHECK(open_source(path, {.labels = {{"kind", folder / "labels.npy"}}})->targets(0) == std::vector<double>{40000});
  write_file(folder / "labels.npy", npy_file("'<i8'", "(1, 2)", std::vector<std::int64_t>{-4, 6}));
  CHECK(open_source(path, {.labels = {{"kind", folder / "labels.npy"}}})->target_names() ==
        std::vector<std::string>{"kind 0", "kind 1"});
  write_file(folder / "labels.npy", npy_file("'<f4'", "(1,)", std::vector<float>{0.5F}));
  CHECK(has(open_error(path, {.labels = {{"kind", folder / "labels.npy"}}}), "labels must be integers, not float32"));

  const auto refused = [&](const Bytes& bytes) {
    write_file(path, bytes);
    return open_error(path);
  };
  CHECK(has(refused(npy_file("'<f4'", "(2, 3, 3)", values)), "a.npy: truncated: 48 bytes of elements, 72 make [2, 3, 3]"));
  CHECK(has(refused(npy_file("'<f4'", "(2, 3, 1)", values)), "longer than it says"));
  CHECK(has(refused(npy_file("'<c8'", "(2, 3, 1)", values)), "elements of type '<c8'"));
  CHECK(has(refused(npy_file("[('x', '<f4')]", "(2, 3, 2)", values)), "records"));
  CHECK(has(refused(npy_file("'<f4'", "(2, 3, 2", values)), "not one of numpy's"));
  CHECK(has(refused(npy_file("'<f4'", "(2, -3, 2)", values)), "not one of numpy's"));
  CHECK(has(refused(npy_file("'<f4'", "(12,)", values)), "samples must be [n, H, W]"));
  CHECK(has(refused({std::byte{'x'}}), "not a .npy file"));
  CHECK(has(refused(npy_file("'<f4'", "(2, 3, 2), 'fortran_order': True", values)), "Fortran order"));

  if (!zip_available()) return count_skipped("sources: npz", "this build has no libzip");
  const auto zip = folder / "b.npz";
  write_file(zip, zip_file({{"train_images.npy", npy_file("'|u1'", "(2, 1, 2)", std::vector<std::uint8_t>{1, 2, 3, 4})},
                            {"train_labels.npy", npy_file("'|u1'", "(2, 1)", std::vector<std::uint8_t>{7, 8})},
                            {"val_images.npy", npy_file("'|u1'", "(1, 1, 2)", std::vector<std::uint8_t>{5, 6})}}));
  const auto train = open_source(zip, {.group = "train"});
  CHECK(values_of(*train, 1) == std::vector<double>{3, 4});
  CHECK(train->target_names() == std::vector<std::string>{"labels"});
  CHECK(train->targets(1) == std::vector<double>{8});
  CHECK(open_source(zip, {.group = "val"})->target_names().empty());
  CHECK(has(open_error(zip), "2 arrays '*' of samples"));
  auto bytes = zip_file({{"x.npy", npy_file("'|u1'", "(1, 1, 2)", std::vector<std::uint8_t>{5, 6})}});
  const auto good = bytes;
  bytes[30 + 5 + 128] ^= std::byte{1};  // of the array: the checksum is wrong
  write_file(zip, bytes);
  CHECK(has(open_error(zip), "'x.npy' is corrupt"));
  write_file(zip, {good.data(), good.data() + good.size() / 2});
  CHECK(has(open_error(zip), "b.npz: cannot be opened"));
}

TEST_CASE("sources: NIfTI") {
  const Folder folder;
  const auto path = folder / "v.nii";
  for (const bool big : {false, true}) {
    write_file(path, nifti_file({3, 2, 1}, 4, {10, 20, 30, 40, 50, 60}, {.big = big, .slope = 2, .shift = 1}));
    const auto source = open_source(path);
    CHECK(source->extents() == Shape{1, 2, 3});
    CHECK(source->type() == DType::float32);
    const auto values = values_of(*source, 0);
    for (std::size_t i = 0; i < 6; ++i) CHECK(values[i] == doctest::Approx(0.2 * static_cast<double>(i)));
  }
  // Channels are the fourth dimension of the file and the last one here; a constant volume becomes 0; bytes.
  write_file(path, nifti_file({2, 1, 1, 2}, 2, {0, 1, 2, 4}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{0, 0.5, 0.25, 1});
  write_file(path, nifti_file({2, 1, 1}, 2, {9, 9}));
  CHECK(values_of(*open_source(path), 0) == std::vector<double>{0, 0});

  const auto refused = [&](const Bytes& bytes) {
    write_file(path, bytes);
    return open_error(path);
  };
  const auto good = nifti_file({3, 2, 1}, 4, {10, 20, 30, 40, 50, 60});
  CHECK(has(refused({good.begin(), good.end() - 1}), "v.nii: truncated: 11 bytes of elements, 12 make 3 x 2 x 1 x 1"));
  CHECK(has(refused({good.begin(), good.begin() + 100}), "shorter than its header"));
  CHECK(has(refused(nifti_file({3, 2, 1}, 32, {10, 20, 30, 40, 50, 60})), "elements of type 32"));
  CHECK(has(refused(nifti_file({1, 1, 1, 1, 2}, 2, {1, 2})), "volumes [x, y, z]"));
  auto pair = good;
  pair[345] = std::byte{'i'};
  CHECK(has(refused(pair), "pair of files"));
  pair[345] = std::byte{'x'};
  CHECK(has(refused(pair), "not a NIfTI-1 file"));

  // A folder of volumes of different extents: cropped around the centre, or padded with zeros.
  fs::remove(path);
  write_file(folder / "a.nii", nifti_file({2, 1, 1}, 2, {0, 1}));
  write_file(folder / "b.nii", nifti_file({4, 1, 1}, 2, {2, 0, 4, 1}));
  CHECK(has(open_error(folder.path), "b.nii is [1, 1, 4]"));
  const auto both = open_source(folder.path, {.extents = {1, 1, 2}});
  CHECK(both->size() == 2);
  CHECK(values_of(*both, 1) == std::vector<double>{0, 1});
}

TEST_CASE("sources: folders of pictures") {
  if (!pictures_can_be_written() || !png_available() || !jpeg_available())
    return skip_test("sources: folders of pictures", "this build has no libpng or no libjpeg-turbo");
  const Folder folder;
  fs::create_directories(folder / "data/cats");
  fs::create_directories(folder / "data/dogs");
  const std::vector<std::uint8_t> colour{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 40, 50, 60, 70, 80, 90};
  write_png(folder / "data/cats/b.png", 2, 3, 3, colour);
  write_png(folder / "data/cats/a.png", 2, 3, 3, std::vector<std::uint8_t>(18, 7));
  write_jpeg(folder / "data/dogs/c.JPG", 2, 3, 3, std::vector<std::uint8_t>(18, 128));
  std::ofstream(folder / "data/dogs/notes.txt") << "not a picture";
  for (const int threads : {0, 1, 4}) {
    const auto source = open_source(folder / "data", {.threads = threads});
    CHECK(source->size() == 3);
    CHECK(source->extents() == Shape{1, 2, 3});
    CHECK(source->channels() == 3);
    CHECK(source->targets(0) == std::vector<double>{0});
    CHECK(source->targets(2) == std::vector<double>{1});
    CHECK(values_of(*source, 1) == std::vector<double>(colour.begin(), colour.end()));
    for (const double value : values_of(*source, 2)) CHECK(std::abs(value - 128) <= 1);
    const auto batch = Loader(source, {.batch = 3}).batch(0, 0);
    CHECK(batch.x.shape() == Shape{3, 1, 2, 3, 3});
    CHECK(batch.x.data<float>()[18] == 1);
  }
  CHECK(FolderSource(folder / "data").classes() == std::vector<std::string>{"cats", "dogs"});

  // Grey and colour pictures together, other extents: only with options.
  write_png(folder / "data/dogs/grey.png", 2, 3, 1, std::vector<std::uint8_t>(6, 9));
  CHECK(has(open_error(folder / "data"), "grey.png has 1 channels"));
  const auto asked = open_source(folder / "data", {.channels = 3});
  CHECK(values_of(*asked, 3) == std::vector<double>(18, 9));
  CHECK(values_of(*open_source(folder / "data", {.channels = 1}), 3) == std::vector<double>(6, 9));
  write_png(folder / "data/dogs/grey.png", 4, 8, 3, std::vector<std::uint8_t>(96, 9));
  CHECK(has(open_error(folder / "data"), "grey.png is [1, 4, 8]"));
  CHECK(values_of(*open_source(folder / "data", {.extents = {2, 2}}), 3) == std::vector<double>(12, 9));

  // Corrupt files are named in errors when their samples are read.
  auto bytes = read_bytes(folder / "data/dogs/grey.png");
  bytes.resize(bytes.size() - 30);
  write_file(folder / "data/dogs/grey.png", bytes);
  const auto broken = open_source(folder / "data");
  CHECK(has(error_text([&] { (void)values_of(*broken, 3); }), "dogs/grey.png: "));
  CHECK(has(error_text([&] { broken->check(1, 2); }), "dogs/grey.png: "));
  auto jpeg = read_bytes(folder / "data/dogs/c.JPG");
  jpeg.resize(jpeg.size() / 2);
  write_file(folder / "data/dogs/c.JPG", jpeg);
  CHECK(has(error_text([&] { (void)values_of(*broken, 2); }), "dogs/c.JPG: "));
  auto png = read_bytes(folder / "data/cats/b.png");
  png[png.size() - 20] ^= std::byte{0x40};
  write_file(folder / "data/cats/b.png", png);
  CHECK(has(error_text([&] { (void)values_of(*broken, 1); }), "cats/b.png: "));
  write_file(folder / "data/cats/b.png", {std::byte{'x'}});
  CHECK(has(error_text([&] { (void)values_of(*broken, 1); }), "b.png: neither PNG nor JPEG"));

  fs::create_directory(folder / "data/empty");
  CHECK(has(open_error(folder / "data"), "empty: no pictures"));
  fs::remove(folder / "data/empty");
  write_png(folder / "data/z.png", 2, 3, 1, std::vector<std::uint8_t>(6, 9));
  CHECK(has(open_error(folder / "data"), "files next to folders"));
  write_file(folder / "data/z.nii", nifti_file({2, 1, 1}, 2, {0, 1}));
  CHECK(has(open_error(folder / "data"), "one folder has one kind"));
}

TEST_CASE("sources: real digits and letters") {
  const char* name = "sources: real digits and letters";
  const auto digits = shared_data("2d/mnist8k-images-idx3-ubyte.gz");
  if (digits.empty()) return skip_test(name, no_shared_data);
  if (!gzip_available()) return skip_test(name, "this build has no zlib");
  const auto mnist = open_source(digits);
  CHECK(mnist->size() == 8000);
  CHECK(mnist->extents() == Shape{1, 28, 28});
  CHECK(mnist->target_names() == std::vector<std::string>{"labels"});
  // The nearest centroid recognises 85.5 % of the digits.
  std::vector<std::vector<double>> centroids(10, std::vector<double>(784)), all;
  std::vector<int> counts(10), labels;
  for (std::int64_t i = 0; i < mnist->size(); ++i) {
    labels.push_back(static_cast<int>(mnist->targets(i)[0]));
    all.push_back(values_of(*mnist, i));
    const auto label = static_cast<std::size_t>(labels.back());
    ++counts[label];
    for (std::size_t k = 0; k < 784; ++k) centroids[label][k] += all.back()[k];
  }
  int right = 0;
  for (std::size_t c = 0; c < 10; ++c)
    for (auto& value : centroids[c]) value /= counts[c];
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::size_t best = 0;
    double least = 1e30;
    for (std::size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (std::size_t k = 0; k < 784; ++k) distance += (all[i][k] - centroids[c][k]) * (all[i][k] - centroids[c][k]);
      if (distance < least) least = distance, best = c;
    }
    right += static_cast<int>(best) == labels[i] ? 1 : 0;
  }
  CHECK(right / 8000.0 > 0.8);
  CHECK(right / 8000.0 < 0.9);

  const auto letters = open_source(shared_data("2d/omniglot_small1-images-idx3-ubyte.gz"), {.extents = {32, 32}});
  CHECK(letters->size() == 2720);
  CHECK(letters->extents() == Shape{1, 32, 32});
  CHECK(letters->target_names() == std::vector<std::string>{"alphabets", "charlabels"});
  std::map<double, int> drawings;
  std::set<double> characters;
  for (std::int64_t i = 0; i < letters->size(); ++i) {
    ++drawings[letters->targets(i)[0]];
    characters.insert(letters->targets(i)[1]);
  }
  CHECK(drawings == std::map<double, int>{{0, 480}, {1, 440}, {2, 480}, {3, 800}, {4, 520}});
  CHECK(characters.size() == 136);
}

TEST_CASE("sources: real volumes") {
  const char* name = "sources: real volumes";
  const auto images = shared_data("3d/hippocampus/images");
  if (images.empty()) return skip_test(name, no_shared_data);
  if (!gzip_available()) return skip_test(name, "this build has no zlib");
  const auto brains = open_source(images, {.extents = {64, 64, 64}});
  CHECK(brains->size() == 200);
  for (const std::int64_t i : {0, 77, 199}) {
    const auto values = values_of(*brains, i);
    CHECK(*std::min_element(values.begin(), values.end()) == 0);
    CHECK(*std::max_element(values.begin(), values.end()) == 1);
  }
  const auto brain = open_source(shared_data("3d/mni152/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"));
  CHECK(brain->extents() == Shape{189, 233, 197});
  const auto npy = shared_data("3d/synthseg_labelmaps/generation_labels.npy");
  if (!npy.empty()) CHECK(read_npy_array(npy).shape.rank() == 1);
}
