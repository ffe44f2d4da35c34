// NIfTI-1 with its geometry: headers against numbers calculated by hand, unscaled values.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "models/data/sources/formats.h"
#include "models/data/volumes/nifti.h"
#include "tests/models/data/nifti_files.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

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
  // Forms with NaN count as missing.
  const float none = std::numeric_limits<float>::quiet_NaN();
  put(file, 254, std::int16_t{1}), put_floats(file, 280, {none});
  check_near(header(file).affine, Affine{0, 0, 4, 10, 2, 0, 0, 20, 0, 3, 0, 30});
  CHECK(header(file).placed);
  put_floats(file, 268, {none});
  CHECK(header(file).affine == Affine{2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0});
  CHECK(!header(file).placed);
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
  // Unsigned 16-bit integers: as stored, scaled, and as labels.
  for (const bool big : {false, true}) {
    write_file(path, nifti_file({3, 1, 1}, 512, {1, 40000, 65535}, {.big = big}));
    CHECK(read_nifti_volume(path).header.type == DType::uint16);
    CHECK(read_nifti_volume(path).values == std::vector<float>{1, 40000, 65535});
    CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{1, 40000, 65535});
    CHECK(read_nifti(path).values[1] == doctest::Approx(39999.0 / 65534));
    write_file(path, nifti_file({2, 1, 1}, 512, {40000, 65535}, {.big = big, .slope = 0.5F, .shift = -1}));
    CHECK(read_nifti_volume(path).values == std::vector<float>{19999, 32766.5F});
  }
  // A slope of 0 means no scaling; the shift is then ignored, too.
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
  put_floats(file, 280 + 12, {90.019F});  // for cells of at least 2 mm
  CHECK(difference(a, header(file)) == "");
  put_floats(file, 280 + 12, {93.25F});
  CHECK(difference(a, header(file)) ==
        "places: cell [0, 0, 0] [z, y, x] lies at [90, -126, -72] and [93.25, -126, -72] mm [x, y, z], 3.25 mm apart");
  // The same first cell, and another last cell of a row.
  file = full_file(false);
  put_floats(file, 280, {-2.01F});
  CHECK(has(difference(a, header(file)), "places: cell [0, 0, 3] [z, y, x] lies at [84, -126, -72] and [83.97, -126, -72] mm"));
  // Mirrored: the last cell of one is the first cell of the other.
  put_floats(file, 280, {2, 0, 0, 84});
  CHECK(has(difference(a, header(file)), "places: cell [0, 0, 0] [z, y, x] lies at [90, -126, -72] and [84, -126, -72]"));
  // The same place, described by a qform.
  auto turned = full_file(false, 1, 0), said = full_file(false);
  put_floats(said, 280, {0, -3, 0, 10, 2, 0, 0, 20, 0, 0, -4, 30});
  CHECK(difference(header(turned), header(said)) == "");
}

TEST_CASE("nifti: NIfTI-2 in either byte order, and labels on its cells with its geometry bit for bit") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const Affine affine{-1.0 / 3, 0.01, 0, 90, 0, 1.0 / 7, 0.5, -126, 0, 0, 4, -72};
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  for (const bool big : {false, true}) {
    write_file(path, placed_file({3, 2, 2}, values, affine, {.version = 2, .big = big}));
    const auto [header, read] = read_nifti_volume(path);
    CHECK(header.extents == Shape{2, 2, 3});
    CHECK(header.affine == affine);  // as doubles
    CHECK(header.spacing[2] == std::hypot(1.0 / 3, 0.0, 0.0));
    CHECK(header.placed);
    CHECK(read == values);
    CHECK(header.bytes.size() == 540);
    const std::vector<std::int32_t> labels(12, 3);
    write_nifti_labels(folder / "l.nii", labels, header, true);
    const auto back = read_nifti_labels(folder / "l.nii");
    CHECK(back.values == labels);
    CHECK(back.header.affine == affine);
    for (const auto& [from, to] : {std::pair{104, 168}, {344, 496}, {500, 504}})
      CHECK(std::equal(header.bytes.begin() + from, header.bytes.begin() + to, back.header.bytes.begin() + from));
    CHECK(std::filesystem::file_size(folder / "l.nii") == 544 + 12);
  }
  auto file = placed_file({3, 2, 2}, values, affine, {.version = 2});
  const auto refused = [&](const Bytes& bytes) {
    write_file(path, bytes);
    return error_text([&] { read_nifti_header(path); });
  };
  CHECK(refused(file).empty());
  CHECK(has(refused({file.begin(), file.begin() + 500}), "v.nii: truncated: 500 bytes of a NIfTI-2 header"));
  CHECK(has(refused({file.begin(), file.end() - 1}), "v.nii: truncated: 47 bytes of elements"));
  auto changed = file;
  put(changed, 168, std::int64_t{540});
  CHECK(has(refused(changed), "v.nii: vox_offset is 540; in a single file the volume begins at byte 544 or later"));
  changed = file;
  put(changed, 4, std::uint32_t{0x0032696e});  // ni2
  CHECK(has(refused(changed), "v.nii: the header of a pair of files"));
  changed[4] = std::byte{'x'};
  CHECK(has(refused(changed), "v.nii: not a NIfTI-2 file"));
  changed = file;
  put(changed, 24, std::int64_t{1} << 40), put(changed, 32, std::int64_t{1} << 40);
  CHECK(has(refused(changed), "v.nii: a file cannot have the extents"));
}
