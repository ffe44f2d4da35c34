// NIfTI-1 with its geometry: headers against numbers made by hand, labels there and back, and real volumes.

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "models/data/sources/formats.h"
#include "models/data/volumes/nifti.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/shared_data.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

template <class T>
void put(Bytes& file, std::size_t at, T value, bool big = false) {
  Bytes bytes;
  append(bytes, value, big);
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
}
void put_floats(Bytes& file, std::size_t at, const std::vector<float>& values, bool big = false) {
  for (std::size_t i = 0; i < values.size(); ++i) put(file, at + 4 * i, std::bit_cast<std::uint32_t>(values[i]), big);
}

// 4 x 3 x 2 cells in x, y, z with everything that geometry is made of.
Bytes full_file(bool big, std::int16_t qform = 1, std::int16_t sform = 2, std::uint8_t units = 2) {
  std::vector<int> elements;
  for (int i = 0; i < 24; ++i) elements.push_back(i % 5);
  auto file = nifti_file({4, 3, 2}, 4, elements, {.big = big});
  put_floats(file, 76, {-1, 2, 3, 4}, big);
  file[123] = static_cast<std::byte>(units);
  const std::string description = "made by hand";
  for (std::size_t i = 0; i < description.size(); ++i) file[148 + i] = static_cast<std::byte>(description[i]);
  put(file, 252, qform, big), put(file, 254, sform, big);
  put_floats(file, 256, {0, 0, 0.70710678F, 10, 20, 30}, big);  // a quarter of a turn about z
  put_floats(file, 280, {-2, 0, 0, 90, 0, 3, 0.5F, -126, 0, 0, 4, -72}, big);
  return file;
}

// As float32, which format_files.h does not write.
Bytes float_file(const std::vector<int>& extents, const std::vector<float>& elements) {
  auto file = nifti_file(extents, 2, {});
  put(file, 70, std::int16_t{16}), put(file, 72, std::int16_t{32});
  file.resize(352 + 4 * elements.size());
  put_floats(file, 352, elements);
  return file;
}

Bytes file_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

template <class Values>
void check_near(const Values& values, const Values& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(values[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

using Affine = std::array<double, 12>;
using Spacing = std::array<double, 3>;

}  // namespace

TEST_CASE("nifti: geometry in either byte order, sform before qform before spacing") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const auto header = [&](const Bytes& file) {
    write_file(path, file);
    return read_nifti_header(path);
  };
  for (const bool big : {false, true}) {
    const auto h = header(full_file(big));
    CHECK(h.extents == Shape{2, 3, 4});
    CHECK(h.channels == 1);
    CHECK(h.type == DType::int16);
    CHECK(h.slope == 1);
    CHECK(h.shift == 0);
    CHECK(h.spacing == Spacing{4, 3, 2});
    CHECK(h.affine == Affine{-2, 0, 0, 90, 0, 3, 0.5, -126, 0, 0, 4, -72});
    const Bytes little(h.bytes.begin(), h.bytes.begin() + 4);
    CHECK(little == Bytes{std::byte{0x5c}, std::byte{1}, std::byte{0}, std::byte{0}});
    CHECK(h.bytes == header(full_file(!big)).bytes);
    // The first axis to y, the second to -x, and the third, as pixdim[0] < 0, to -z.
    check_near(header(full_file(big, 1, 0)).affine, Affine{0, -3, 0, 10, 2, 0, 0, 20, 0, 0, -4, 30});
    CHECK(header(full_file(big, 0, 0)).affine == Affine{2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0});
  }
  auto file = full_file(false, 1, 0);
  put_floats(file, 76, {1});
  put_floats(file, 256, {0, 1.0000001F, 0});  // half a turn about y
  check_near(header(file).affine, Affine{-2, 0, 0, 10, 0, 3, 0, 20, 0, 0, -4, 30});
  put_floats(file, 256, {0.5F, 0.5F, 0.5F});  // a third of a turn about (1, 1, 1): x to y to z to x
  check_near(header(file).affine, Affine{0, 0, 4, 10, 2, 0, 0, 20, 0, 3, 0, 30});
  // Forms that are no numbers count as missing.
  const float none = std::numeric_limits<float>::quiet_NaN();
  put(file, 254, std::int16_t{1}), put_floats(file, 280, {none});
  check_near(header(file).affine, Affine{0, 0, 4, 10, 2, 0, 0, 20, 0, 3, 0, 30});
  put_floats(file, 268, {none});
  CHECK(header(file).affine == Affine{2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0});
}

TEST_CASE("nifti: units, and spacing that is none") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const auto header = [&](const Bytes& file) {
    write_file(path, file);
    return read_nifti_header(path);
  };
  check_near(header(full_file(false, 1, 2, 1)).spacing, Spacing{4000, 3000, 2000});
  check_near(header(full_file(false, 1, 2, 1)).affine, Affine{-2000, 0, 0, 90000, 0, 3000, 500, -126000, 0, 0, 4000, -72000});
  check_near(header(full_file(true, 1, 2, 3 + 8)).spacing, Spacing{0.004, 0.003, 0.002});  // 8: seconds
  check_near(header(full_file(false, 1, 0, 3)).affine, Affine{0, -0.003, 0, 0.01, 0.002, 0, 0, 0.02, 0, 0, -0.004, 0.03});
  CHECK(header(full_file(false, 1, 2, 0)).spacing == Spacing{4, 3, 2});
  auto file = full_file(false, 0, 0, 1);
  put_floats(file, 80, {-2, 0, std::numeric_limits<float>::infinity()});
  CHECK(header(file).spacing == Spacing{1, 1, 2000});
  CHECK(header(file).affine == Affine{2000, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0});
}

TEST_CASE("nifti: values as they are") {
  const Folder folder;
  const auto path = folder / "v.nii";
  for (const bool big : {false, true}) {
    write_file(path, nifti_file({3, 2, 1}, 4, {10, -20, 30, 40, 50, 60}, {.big = big, .slope = 0.5F, .shift = 1}));
    const auto [header, values] = read_nifti_volume(path);
    CHECK(header.slope == 0.5);
    CHECK(header.shift == 1);
    CHECK(values == std::vector<float>{6, -9, 16, 21, 26, 31});
  }
  // Unsigned 16-bit integers: as they are stored, scaled, and as labels.
  for (const bool big : {false, true}) {
    write_file(path, nifti_file({3, 1, 1}, 512, {1, 40000, 65535}, {.big = big}));
    CHECK(read_nifti_volume(path).header.type == DType::uint16);
    CHECK(read_nifti_volume(path).values == std::vector<float>{1, 40000, 65535});
    CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{1, 40000, 65535});
    CHECK(read_nifti(path).values[1] == doctest::Approx(39999.0 / 65534));
    write_file(path, nifti_file({2, 1, 1}, 512, {40000, 65535}, {.big = big, .slope = 0.5F, .shift = -1}));
    CHECK(read_nifti_volume(path).values == std::vector<float>{19999, 32766.5F});
  }
  // A slope of 0 means none, and then the shift is none either.
  write_file(path, nifti_file({2, 1, 1}, 2, {3, 200}, {.slope = 0, .shift = 7}));
  CHECK(read_nifti_volume(path).values == std::vector<float>{3, 200});
  // Channels are last; a fourth dimension of 1 is a volume.
  write_file(path, nifti_file({2, 1, 1, 2}, 2, {0, 1, 2, 4}));
  const auto two = read_nifti_volume(path);
  CHECK(two.header.extents == Shape{1, 1, 2});
  CHECK(two.header.channels == 2);
  CHECK(two.values == std::vector<float>{0, 2, 1, 4});
  write_file(path, nifti_file({2, 1, 1, 1}, 2, {5, 6}));
  CHECK(read_nifti_header(path).channels == 1);
  CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{5, 6});
  write_file(path, float_file({2, 1, 1}, {0.25F, -1e30F}));
  CHECK(read_nifti_volume(path).header.type == DType::float32);
  CHECK(read_nifti_volume(path).values == std::vector<float>{0.25F, -1e30F});
  for (const int colours : {128, 2304}) {
    write_file(path, nifti_file({2, 1, 1}, colours, {1, 2}));
    CHECK(has(error_text([&] { read_nifti_header(path); }), fmt::format("v.nii: elements of type {}", colours)));
  }
  auto cut = full_file(false);
  cut.pop_back();
  write_file(path, cut);
  CHECK(has(error_text([&] { read_nifti_header(path); }), "v.nii: truncated: 47 bytes of elements"));
  CHECK(has(error_text([&] { read_nifti_header(folder / "none.nii"); }), "none.nii: no such file"));
}

TEST_CASE("nifti: a header is read without what is behind it") {
  if (!gzip_available()) return skip_test("nifti: a header is read without what is behind it", "this build has no zlib");
  const Folder folder;
  const auto path = folder / "v.nii.gz";
  const auto whole = full_file(true);
  auto packed = gzip(whole);
  write_file(path, packed);
  CHECK(read_nifti_labels(path).values.size() == 24);
  packed[packed.size() - 6] ^= std::byte{1};  // the checksum
  write_file(path, packed);
  CHECK(read_nifti_header(path).extents == Shape{2, 3, 4});
  CHECK(has(error_text([&] { read_nifti_volume(path); }), "v.nii.gz: the file is corrupt"));
}

TEST_CASE("nifti: a volume begins behind the header and its four bytes") {
  const Folder folder;
  const auto path = folder / "v.nii";
  for (const float offset : {0.0F, 348.0F, 351.0F, -352.0F, 352.5F, 352.0F}) {
    CAPTURE(offset);
    auto bytes = float_file({2, 1, 1}, {1, 2});
    put_floats(bytes, 108, {offset});
    write_file(path, bytes);
    const auto text = error_text([&] { read_nifti_header(path); });
    if (offset == 352) CHECK(text.empty());
    else CHECK((has(text, path.string()) && has(text, offset < 352 ? "vox_offset is" : "begins at byte 352.5")));
  }
}

TEST_CASE("nifti: what is no label is refused with its place") {
  const Folder folder;
  const auto path = folder / "l.nii";
  const auto refused = [&](const Bytes& file) {
    write_file(path, file);
    return error_text([&] { read_nifti_labels(path); });
  };
  std::vector<float> labels(24);
  const auto with = [&](float value) {
    auto changed = labels;
    changed[(1 * 3 + 2) * 4 + 3] = value;
    return refused(float_file({4, 3, 2}, changed));
  };
  CHECK(with(2) == "");
  CHECK(with(2147483520.0F) == "");  // the greatest float below 2^31
  CHECK(has(with(2.5F), "l.nii: 2.5 at [1, 2, 3] [z, y, x] is no label: they are whole numbers from 0 to 2147483647"));
  CHECK(has(with(-1), "l.nii: -1 at [1, 2, 3]"));
  CHECK(has(with(2147483648.0F), "l.nii: 2147483648 at [1, 2, 3]"));
  CHECK(has(with(std::numeric_limits<float>::quiet_NaN()), "l.nii: nan at [1, 2, 3]"));
  CHECK(has(with(std::numeric_limits<float>::infinity()), "l.nii: inf at [1, 2, 3]"));
  CHECK(has(refused(nifti_file({2, 1, 1, 2}, 2, {0, 1, 2, 4})), "l.nii: 2 channels"));
  CHECK(has(refused(nifti_file({2, 1, 1}, 2, {0, 1}, {.slope = 0.5F})), "l.nii: 0.5 at [0, 0, 1]"));
  CHECK(refused(nifti_file({2, 1, 1}, 4, {0, 3}, {.slope = 2, .shift = 1})) == "");
  CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{1, 7});
}

TEST_CASE("nifti: what differs between two geometries") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const auto header = [&](const Bytes& file) {
    write_file(path, file);
    return read_nifti_header(path);
  };
  const auto a = header(full_file(false));
  CHECK(difference(a, a) == "");
  CHECK(difference(a, header(full_file(true))) == "");
  CHECK(difference(a, header(nifti_file({4, 3, 1}, 2, std::vector<int>(12)))) == "extents [2, 3, 4] and [1, 3, 4]");

  auto file = full_file(false);
  put_floats(file, 88, {4.05F});
  CHECK(difference(a, header(file)) == "spacing [4, 3, 2] and [4.05, 3, 2] mm [z, y, x]");
  put_floats(file, 88, {4.0001F});
  CHECK(difference(a, header(file)) == "");

  file = full_file(false);
  put_floats(file, 280 + 12, {90.019F});  // of cells of at least 2 mm
  CHECK(difference(a, header(file)) == "");
  put_floats(file, 280 + 12, {93.25F});
  CHECK(difference(a, header(file)) ==
        "places: cell [0, 0, 0] [z, y, x] lies at [90, -126, -72] and [93.25, -126, -72] mm [x, y, z], 3.25 mm apart");
  // The same first cell, and the last of a row elsewhere.
  file = full_file(false);
  put_floats(file, 280, {-2.01F});
  CHECK(has(difference(a, header(file)), "places: cell [0, 0, 3] [z, y, x] lies at [84, -126, -72] and [83.97, -126, -72] mm"));
  // Mirrored: the last cell of one is the first of the other.
  put_floats(file, 280, {2, 0, 0, 84});
  CHECK(has(difference(a, header(file)), "places: cell [0, 0, 0] [z, y, x] lies at [90, -126, -72] and [84, -126, -72]"));
  // The same place, said by a qform.
  auto turned = full_file(false, 1, 0), said = full_file(false);
  put_floats(said, 280, {0, -3, 0, 10, 2, 0, 0, 20, 0, 0, -4, 30});
  CHECK(difference(header(turned), header(said)) == "");
}

TEST_CASE("nifti: labels are written onto the cells of a file") {
  const Folder folder;
  std::vector<std::int32_t> labels(24);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * i % 7);
  for (const bool big : {false, true}) {
    for (const int units : {0, 1, 2, 3}) {
      write_file(folder / "v.nii", full_file(big, 1, units == 0 ? 0 : 2, static_cast<std::uint8_t>(units)));
      const auto like = read_nifti_header(folder / "v.nii");
      for (const char* name : {"l.nii", "l.nii.gz"}) {
        if (!gzip_available() && std::string(name) == "l.nii.gz") {
          CHECK(has(error_text([&] { write_nifti_labels(folder / name, labels, like); }), "l.nii.gz: this build packs nothing"));
          continue;
        }
        write_nifti_labels(folder / name, labels, like, true);
        const auto back = read_nifti_labels(folder / name);
        CHECK(back.values == labels);
        CHECK(difference(like, back.header) == "");
        CHECK(back.header.affine == like.affine);
        CHECK(back.header.spacing == like.spacing);
        CHECK(back.header.type == DType::uint8);
        const auto same = [&](int from, int to) {
          return std::equal(like.bytes.begin() + from, like.bytes.begin() + to, back.header.bytes.begin() + from);
        };
        CHECK(same(76, 92));    // pixdim
        CHECK(same(123, 124));  // units
        CHECK(same(148, 228));  // description
        CHECK(same(252, 328));  // codes and numbers of the forms
        CHECK(back.header.bytes[72] == std::byte{8});
        const bool packed = file_bytes(folder / name)[0] == std::byte{0x1f};
        CHECK(packed == std::string(name).ends_with(".gz"));
      }
    }
  }
  // 352 bytes and one for each label, four where one of them needs them; the least in either.
  const auto like = read_nifti_header(folder / "v.nii");
  CHECK(fs::file_size(folder / "l.nii") == 352 + 24);
  for (const std::int32_t most : {255, 256, std::numeric_limits<std::int32_t>::max()}) {
    labels[5] = most;
    write_nifti_labels(folder / "l.nii", labels, like, true);
    CHECK(read_nifti_labels(folder / "l.nii").values == labels);
    CHECK(fs::file_size(folder / "l.nii") == 352 + (most < 256 ? 24U : 96U));
  }
  // From several channels, with a slope: labels are one, with none.
  write_file(folder / "c.nii", nifti_file({4, 3, 2, 2}, 2, std::vector<int>(48, 9), {.slope = 3, .shift = 1}));
  const auto channels = read_nifti_header(folder / "c.nii");
  CHECK(channels.channels == 2);
  write_nifti_labels(folder / "of_c.nii", labels, channels);
  CHECK(read_nifti_labels(folder / "of_c.nii").values == labels);
  CHECK(read_nifti_header(folder / "of_c.nii").slope == 1);
  CHECK(difference(channels, read_nifti_header(folder / "of_c.nii")) == "");
}

TEST_CASE("nifti: nothing is written but what was asked for") {
  const Folder folder;
  write_file(folder / "v.nii", full_file(false));
  const auto like = read_nifti_header(folder / "v.nii");
  const std::vector<std::int32_t> labels(24, 1);
  const auto refused = [&](const char* name, const std::vector<std::int32_t>& values, const NiftiHeader& geometry) {
    return error_text([&] { write_nifti_labels(folder / name, values, geometry); });
  };
  const auto before = file_bytes(folder / "v.nii");
  CHECK(has(refused("v.nii", labels, like), "v.nii: exists already; it is replaced only when asked to overwrite"));
  CHECK(file_bytes(folder / "v.nii") == before);
  CHECK(has(refused("l.nii", std::vector<std::int32_t>(23), like), "l.nii: 23 labels for the 24 cells of [2, 3, 4]"));
  auto negative = labels;
  negative[23] = -3;
  CHECK(has(refused("l.nii", negative, like), "l.nii: -3 at [1, 2, 3] [z, y, x] is no label"));
  CHECK(has(refused("l.nii", {1}, {}), "l.nii: the geometry is no file's"));
  CHECK(has(refused("none/l.nii", labels, like), "none/l.nii cannot be written: No such file or directory"));
  CHECK(folder.files() == 1);

  fs::create_directory(folder / "d.nii");
  const auto into_folder = error_text([&] { write_nifti_labels(folder / "d.nii", labels, like, true); });
  CHECK(has(into_folder, "d.nii is in the way: a folder, not a regular file"));
  fs::create_symlink(folder / "elsewhere", folder / "l.nii");
  CHECK(has(refused("l.nii", labels, like), "l.nii: exists already"));
  write_nifti_labels(folder / "l.nii", labels, like, true);
  CHECK(fs::is_regular_file(fs::symlink_status(folder / "l.nii")));
  CHECK(!fs::exists(folder / "elsewhere"));
  CHECK(folder.files() == 3);
}

TEST_CASE("nifti: a full disk leaves what was there") {
  const Folder folder;
  write_file(folder / "v.nii", nifti_file({64, 64, 16}, 2, std::vector<int>(65536)));
  const auto like = read_nifti_header(folder / "v.nii");
  write_file(folder / "l.nii", full_file(false));
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, old{};
  getrlimit(RLIMIT_FSIZE, &old);
  limit = old;
  limit.rlim_cur = 30000;  // a file cannot grow beyond this, as if the disk were full
  setrlimit(RLIMIT_FSIZE, &limit);
  const auto full = error_text([&] { write_nifti_labels(folder / "l.nii", std::vector<std::int32_t>(65536), like, true); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, previous);
  CHECK(has(full, "l.nii could not be written completely: "));
  CHECK(file_bytes(folder / "l.nii") == full_file(false));
  CHECK(folder.files() == 2);
}

TEST_CASE("nifti: real labels lie on the cells of their volumes") {
  const char* name = "nifti: real labels lie on the cells of their volumes";
  const auto images = shared_data("3d/hippocampus/images"), labels = shared_data("3d/hippocampus/labels");
  if (images.empty() || labels.empty()) return skip_test(name, no_shared_data);
  if (!gzip_available()) return skip_test(name, "this build has no zlib");
  const Folder folder;
  int pairs = 0, floating = 0;
  for (const auto& entry : fs::directory_iterator(images)) {
    const auto file = entry.path().filename();
    INFO(file.string());
    const auto image = read_nifti_header(entry.path());
    const auto label = read_nifti_labels(labels / file);
    ++pairs, floating += is_floating(label.header.type) ? 1 : 0;
    CHECK(difference(image, label.header) == "");
    CHECK(*std::min_element(label.values.begin(), label.values.end()) == 0);
    CHECK(*std::max_element(label.values.begin(), label.values.end()) == 2);
    if (pairs % 20 != 0) continue;
    // The same numbers as read_nifti()'s, before those are scaled; and labels there and back.
    const auto volume = read_nifti_volume(entry.path());
    const auto [least, most] = std::minmax_element(volume.values.begin(), volume.values.end());
    const auto scaled = read_nifti(entry.path());
    CHECK(scaled.extents == volume.header.extents);
    double farthest = 0;
    for (std::size_t i = 0; i < scaled.values.size(); ++i)
      farthest =
          std::max(farthest, std::abs(static_cast<double>(scaled.values[i]) - (volume.values[i] - *least) / (*most - *least)));
    CHECK(farthest < 1e-6);
    write_nifti_labels(folder / "back.nii.gz", label.values, image, true);
    const auto back = read_nifti_labels(folder / "back.nii.gz");
    CHECK(back.values == label.values);
    CHECK(difference(back.header, label.header) == "");
  }
  CHECK(pairs == 200);
  CHECK(floating == 2);
}
