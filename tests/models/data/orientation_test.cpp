// The letters of all 48 ways to store a volume, straight and oblique; volumes that are turned to one orientation and back.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/data/volumes/nifti.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volumes.h"
#include "tests/models/data/nifti_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

// Axes of lengths 0.5, 1 and 3 mm along the rows `order`, then rotated by an angle about (1, 1, 1).
VolumeHeader header_of(const std::array<std::size_t, 3>& order, const std::array<int, 3>& signs, double angle,
                       bool placed = true) {
  VolumeHeader header;
  header.placed = placed;
  const double along = (1 + 2 * std::cos(angle)) / 3, s = std::sin(angle) / std::sqrt(3.0), across = (1 - std::cos(angle)) / 3;
  const double rotation[3][3]{{along, across - s, across + s}, {across + s, along, across - s}, {across - s, across + s, along}};
  const double lengths[3]{0.5, 1, 3};
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::size_t row = 0; row < 3; ++row)
      header.affine[4 * row + axis] = rotation[row][order[axis]] * signs[axis] * lengths[axis];
  return header;
}

}  // namespace

TEST_CASE("orientation: all ways to store a volume have their letters, oblique ones those of the nearest axes") {
  std::array<std::size_t, 3> order{0, 1, 2};
  int seen = 0;
  do {
    for (int flips = 0; flips < 8; ++flips) {
      std::array<int, 3> signs{};
      std::string expected;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        signs[axis] = (flips >> axis & 1) != 0 ? -1 : 1;
        expected += (signs[axis] < 0 ? "LPI" : "RAS")[order[axis]];
      }
      for (const double angle : {0.0, 0.3, -0.5}) CHECK(orientation_of(header_of(order, signs, angle)) == expected);
      ++seen;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(seen == 48);
}

TEST_CASE("orientation: files that say none have none") {
  CHECK(orientation_of(header_of({0, 1, 2}, {1, 1, 1}, 0, false)).empty());
  auto flat = header_of({0, 1, 2}, {1, 1, 1}, 0);
  flat.affine[5] = 0;
  CHECK(orientation_of(flat).empty());
  CHECK(orientation_of(plain_volume_header({2, 3, 4})) == orientation_of(plain_volume_header({5, 6, 7}, {1, 2, 3})));
  CHECK(orientation_of(VolumeHeader{}).empty());
}

namespace {

constexpr std::array<int, 3> xyz{5, 4, 3};
// Straight, and turned by 0.3 about (1, 1, 1).
const std::array<double, 12> straight{0.5, 0, 0, -7, 0, 1, 0, 11, 0, 0, 3, 2};
std::array<double, 12> oblique() {
  auto result = header_of({0, 1, 2}, {1, 1, 1}, 0.3).affine;
  result[3] = -7, result[7] = 11, result[11] = 2;
  return result;
}

std::vector<float> values_of(const Source& source, std::int64_t sample) {
  const auto values = source.values(sample, source.whole_of(sample));
  return {values.begin(), values.end()};
}

// Cell i of a straight volume holds i + 1.
std::vector<float> numbered(const Way& way) {
  std::vector<float> values;
  way.for_each_cell(xyz, [&](std::size_t, std::size_t at) { values.push_back(static_cast<float>(at + 1)); });
  return values;
}

}  // namespace

TEST_CASE("orientation: volumes stored in all 48 ways are the same when they are turned, and labels go back to their files") {
  for (const auto& map : {straight, oblique()})
    for (const int version : {1, 2}) {
      const Folder folder;
      const auto images = folder.path / "images", labels = folder.path / "labels";
      std::filesystem::create_directory(images), std::filesystem::create_directory(labels);
      const auto ways = all_ways();
      for (std::size_t w = 0; w < ways.size(); ++w) {
        const auto file = placed_file(ways[w].extents(xyz), numbered(ways[w]), ways[w].affine(xyz, map),
                                      {.version = version, .big = w % 3 == 0});
        for (const auto& part : {images, labels}) write_file(part / fmt::format("{:02}.nii", w), file);
      }
      const VolumeFolder ras(images, labels, {.orientation = "RAS"});
      const VolumeFolder pir(images, labels, {.orientation = "PIR", .spacing = {{0.5, 3, 1}}});  // of [R, I, P]: not resampled
      const Shape turned_to{3, 4, 5};
      for (std::int64_t w = 0; w < 48; ++w) {
        CAPTURE(w);
        const auto& way = ways[static_cast<std::size_t>(w)];
        CHECK(orientation_of(ras.header(w)) == way.letters());
        CHECK(ras.extents_of(w) == turned_to);
        CHECK(values_of(ras, w) == numbered({}));
        std::vector<std::int32_t> cells(60);
        ras.read_targets(w, ras.whole_of(w), reinterpret_cast<std::byte*>(cells.data()));
        CHECK(std::vector<float>(cells.begin(), cells.end()) == numbered({}));
        CHECK(ras.labels_in_file(w, cells) == read_nifti_labels(ras.labels(w)).values);
        const auto header = ras.turned_header(w);
        CHECK(orientation_of(header) == "RAS");
        for (std::size_t i = 0; i < 12; ++i) CHECK(header.affine[i] == doctest::Approx(map[i]).epsilon(1e-5).scale(1));
        for (std::size_t a = 0; a < 3; ++a)
          CHECK(ras.spacing_of(w)[a] == doctest::Approx(std::array{3.0, 1.0, 0.5}[a]).epsilon(1e-5));
        CHECK(values_of(pir, w) == values_of(pir, 0));
      }
      CHECK(values_of(pir, 0)[0] == (2 * 4 + 3) * 5 + 1);  // the first cell lies in front, at the head and on the left
      CHECK(pir.extents_of(0) == Shape{5, 3, 4});
    }
}

TEST_CASE("orientation: forms that are missing, a negative pixdim, shear, texts that are no orientation") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const Way lps{{0, 1, 2}, {true, true, false}};
  const auto turned_values = [&](const Bytes& file) {
    write_file(path, file);
    return values_of(VolumeFolder(path, "", {.orientation = "RAS"}), 0);
  };
  CHECK(turned_values(placed_file({5, 4, 3}, numbered(lps), lps.affine(xyz, straight))) == numbered({}));
  CHECK(turned_values(placed_file({5, 4, 3}, numbered(lps), lps.affine(xyz, straight), {.sform = false})) == numbered(lps));
  // The qform of no turn, with pixdim[0] = -1: the third axis runs backwards.
  auto file = placed_file({5, 4, 3}, numbered({{0, 1, 2}, {false, false, true}}), straight, {.sform = false});
  put_floats(file, 76, {-1}), put(file, 252, std::int16_t{1});
  CHECK(turned_values(file) == numbered({}));
  CHECK(orientation_of(read_nifti_header(path)) == "RAI");
  // The sform counts where both are there.
  put(file, 254, std::int16_t{1}), put_floats(file, 280, {-0.5F, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0});
  CHECK(turned_values(file) == numbered({{0, 1, 2}, {true, false, true}}));

  CHECK(shear_of(header_of({2, 0, 1}, {1, -1, 1}, 0.4)) == doctest::Approx(0).scale(1).epsilon(1e-12));
  auto sheared = plain_volume_header({3, 4, 5});
  sheared.affine[1] = 0.5;  // y leans towards x
  CHECK(shear_of(sheared) == doctest::Approx(0.5 / std::hypot(1, 0.5)));
  CHECK(orientation_of(sheared) == "RAS");
  for (const char* text : {"RAS", "LPI", "SAR", "IPL"}) CHECK(is_orientation(text));
  for (const char* text : {"", "RA", "RAR", "RAL", "ras", "RASS", "XYZ"}) CHECK_FALSE(is_orientation(text));
  CHECK(has(error_text([&] { VolumeFolder(path, "", {.orientation = "RAR"}); }), "'RAR' is no orientation"));
  CHECK(has(error_text([&] { (void)turn_between("RAS", "LR"); }), "'LR' is no orientation such as RAS"));
}

TEST_CASE("orientation: volumes of other spacings are resampled to the range of a training, along turned axes") {
  const Folder folder;
  const auto path = folder / "v.nii";
  const Way way{{2, 0, 1}, {true, false, false}};
  write_file(path, placed_file(way.extents(xyz), numbered(way), way.affine(xyz, straight)));
  const auto extents = [&](const std::array<double, 3>& least, const std::array<double, 3>& most) {
    const VolumeFolder source(path, "", {.orientation = "RAS", .least_spacing = least, .most_spacing = most});
    CHECK(values_of(source, 0).size() == static_cast<std::size_t>(source.extents_of(0).elements()));
    return source.extents_of(0);
  };
  CHECK(extents({}, {}) == Shape{3, 4, 5});
  CHECK(extents({1, 1, 0.25}, {3, 3, 1}) == Shape{3, 4, 5});
  CHECK(extents({1, 1.005, 0.25}, {2.99, 3, 1}) == Shape{3, 4, 5});  // within 1 %
  CHECK(extents({1, 2, 0.25}, {1.5, 3, 1}) == Shape{6, 2, 5});       // 3 mm to 1.5, 1 mm to 2
  CHECK(extents({1, 1, 1}, {3, 1, 1}) == Shape{3, 4, 3});            // 5 cells of 0.5 mm to 1 mm
}
