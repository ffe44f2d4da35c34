// Values of files are kept as they are, or refused with their place: pictures of any depth, files that programs have rounded,
// padded and resampled, and numbers that float32 does not represent.

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "models/data/data.h"
#include "models/data/images/decode.h"
#include "models/data/sources/formats.h"
#include "models/data/sources/open.h"
#include "models/data/sources/pack.h"
#include "models/data/view_loader.h"
#include "models/data/volumes/nifti.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

using Row = std::vector<std::uint8_t>;

// The values of the picture in these bytes, and their bits.
struct Seen {
  std::int64_t channels;
  int bits;
  std::vector<int> values;
  bool operator==(const Seen&) const = default;
};
Seen seen(const Bytes& file, int channels = 0) {
  const auto pixels = decode_png(file, channels, "p.png");
  Seen result{pixels.channels, pixels.bits, {}};
  const std::size_t step = pixels.bits == 16 ? 2 : 1;
  for (std::size_t i = 0; i < pixels.values.size(); i += step) {
    std::uint16_t wide = 0;
    std::memcpy(&wide, pixels.values.data() + i, step);
    result.values.push_back(step == 2 ? wide : pixels.values[i]);
  }
  return result;
}

// A NIfTI file of float64.
Bytes double_file(const std::vector<double>& values) {
  auto file = nifti_file({static_cast<int>(values.size()), 1, 1}, 2, {});
  file[70] = std::byte{64}, file[72] = std::byte{64};
  for (const double value : values) append(file, std::bit_cast<std::uint64_t>(value));
  return file;
}

}  // namespace

TEST_CASE("kept values: every depth, palette and alpha of PNG") {
  if (!png_available()) return skip_test("kept values: every depth, palette and alpha of PNG", "this build has no libpng");
  CHECK(seen(png_file(4, 1, 1, 0, {0b01010000})) == Seen{1, 8, {0, 255, 0, 255}});
  CHECK(seen(png_file(4, 1, 2, 0, {0b00011011})) == Seen{1, 8, {0, 85, 170, 255}});
  CHECK(seen(png_file(2, 1, 4, 0, {0x2f})) == Seen{1, 8, {34, 255}});
  CHECK(seen(png_file(3, 1, 8, 0, {0, 7, 255})) == Seen{1, 8, {0, 7, 255}});
  CHECK(seen(png_file(2, 2, 16, 0, {0, 1, 1, 0, 0x12, 0x34, 0xff, 0xff})) == Seen{1, 16, {1, 256, 0x1234, 65535}});
  CHECK(seen(png_file(1, 1, 16, 2, {0, 1, 1, 0, 2, 3})) == Seen{3, 16, {1, 256, 515}});
  CHECK(seen(png_file(4, 1, 2, 3, {0b00011011}, {{"PLTE", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}})) ==
        Seen{3, 8, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}});
  // Linear light: gamma 1, which is not applied.
  CHECK(seen(png_file(3, 1, 8, 0, {10, 20, 30}, {{"gAMA", {0, 1, 0x86, 0xa0}}})) == Seen{1, 8, {10, 20, 30}});
  CHECK(seen(png_file(1, 1, 16, 0, {0x12, 0x34}, {{"gAMA", {0, 1, 0x86, 0xa0}}})) == Seen{1, 16, {0x1234}});
  // Grey pictures as colours, colour pictures as grey.
  CHECK(seen(png_file(1, 1, 16, 0, {0x12, 0x34}), 3) == Seen{3, 16, {0x1234, 0x1234, 0x1234}});
  CHECK(seen(png_file(2, 1, 8, 2, {200, 100, 50, 9, 9, 9}), 1) == Seen{1, 8, {124, 9}});
  CHECK(seen(png_file(1, 1, 16, 2, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), 1) == Seen{1, 16, {65535}});
  // Alpha that is opaque everywhere is dropped; otherwise it is refused: a transparent black cell would become black on black.
  CHECK(seen(png_file(2, 1, 8, 4, {7, 255, 8, 255})) == Seen{1, 8, {7, 8}});
  CHECK(seen(png_file(1, 1, 16, 6, {0, 1, 0, 2, 0, 3, 0xff, 0xff})) == Seen{3, 16, {1, 2, 3}});
  const auto refused = [](const Bytes& file) { return error_text([&] { seen(file); }); };
  CHECK(has(refused(png_file(2, 2, 8, 4, {7, 255, 8, 255, 9, 255, 0, 254})),
            "[png] p.png: the pixel in row 1 and column 1 is transparent"));
  CHECK(has(refused(png_file(1, 1, 16, 6, {0, 1, 0, 2, 0, 3, 0xff, 0xfe})), "row 0 and column 0 is transparent"));
  CHECK(has(refused(png_file(2, 1, 8, 0, {7, 8}, {{"tRNS", {0, 8}}})), "row 0 and column 1 is transparent"));
  CHECK(has(refused(png_file(4, 1, 2, 3, {0b00010000}, {{"PLTE", {1, 2, 3, 4, 5, 6}}, {"tRNS", {255, 0}}})), "column 1 is"));
  auto cut = png_file(2, 1, 8, 0, {7, 8});
  cut.resize(cut.size() - 20);
  CHECK(has(refused(cut), "[png] p.png: "));
}

TEST_CASE("kept values: 4,096 grey values of 16 bits stay 4,096") {
  if (!png_available()) return skip_test("kept values: 4,096 grey values of 16 bits stay 4,096", "this build has no libpng");
  const Folder folder;
  Row rows;
  for (int i = 0; i < 4096; ++i)
    rows.push_back(static_cast<std::uint8_t>(i >> 4)), rows.push_back(static_cast<std::uint8_t>(i << 4));
  write_file(folder / "a.png", png_file(64, 64, 16, 0, rows));
  const auto source = open_source(folder.path);
  CHECK(source->type() == DType::uint16);
  CHECK(source->transform() == Transform::unit16);
  const auto check = [&](const std::vector<double>& values) {
    REQUIRE(values.size() == 4096);
    CHECK(std::set<double>(values.begin(), values.end()).size() == 4096);
    CHECK(values[1] == static_cast<float>(16 / 65535.0));
    CHECK(values[4095] == static_cast<float>(65520 / 65535.0));
  };
  check(Loader(source, {.batch = 1}).batch(0, 0).x.to_vector());
  check(ViewLoader(source, {.views = {{augment::Recipe{}, 1}}}).batch(0, 0).x[0].to_vector());
  if (hdf5_available()) {
    const Folder other;
    pack(*source, other / "p.h5");
    const auto packed = open_source(other / "p.h5");
    CHECK(packed->type() == DType::uint16);
    check(Loader(packed, {.batch = 1}).batch(0, 0).x.to_vector());
  }
  write_file(folder / "b.png", png_file(64, 64, 8, 0, Row(4096, 9)));
  const auto both = open_source(folder.path);
  CHECK(has(error_text([&] { both->check(0, 1); }), "b.png has 8 bits for each value, "));
}

TEST_CASE("kept values: zeros after what gzip packed are padding") {
  if (!gzip_available()) return skip_test("kept values: zeros after what gzip packed are padding", "this build has no zlib");
  const Folder folder;
  std::vector<int> elements(24);
  std::iota(elements.begin(), elements.end(), 0);
  auto packed = gzip(nifti_file({4, 3, 2}, 2, elements));
  const auto whole = packed;
  packed.resize(packed.size() + 70000);
  write_file(folder / "v.nii.gz", packed);
  CHECK(read_nifti_volume(folder / "v.nii.gz").values[23] == 23);
  // Also between gzip members; anything else is refused as before.
  packed.insert(packed.end(), whole.begin(), whole.end());
  write_file(folder / "two.gz", packed);
  CHECK(read_bytes(folder / "two.gz").size() == 2 * (352 + 24));
  packed.push_back(std::byte{7});
  write_file(folder / "two.gz", packed);
  CHECK(has(error_text([&] { read_bytes(folder / "two.gz"); }), "two.gz: the file is "));
}

TEST_CASE("kept values: labels that are nearly whole") {
  const Folder folder;
  const auto path = folder / "l.nii";
  write_file(path, double_file({0.9999, 2.0009, -0.0009, 7}));
  CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{1, 2, 0, 7});
  for (const double value : {0.998, 2.0011, -0.0011, 2147483647.6}) {
    write_file(path, double_file({1, value}));
    CHECK(has(error_text([&] { read_nifti_labels(path); }), "at [0, 0, 1] [z, y, x] is not a label"));
  }
}

TEST_CASE("kept values: what float32 does not hold is refused with file and value") {
  const Folder folder;
  constexpr double most = std::numeric_limits<float>::max();
  write_file(folder / "v.nii", double_file({-most, 0, most}));
  CHECK(read_nifti_volume(folder / "v.nii").values[2] == std::numeric_limits<float>::max());
  CHECK(read_nifti(folder / "v.nii").values == std::vector<float>{0, 0.5F, 1});
  write_file(folder / "v.nii", double_file({0, 1e308, -1e308}));
  for (const auto& text :
       {error_text([&] { read_nifti(folder / "v.nii"); }), error_text([&] { read_nifti_volume(folder / "v.nii"); })})
    CHECK(has(text, "v.nii: 1e+308 at [0, 0, 1] [z, y, x] is beyond float32, whose greatest number is 3.4e+38"));

  const std::vector<double> values{1, 2, 3, 4, 5, -1e39, 7, 8};
  write_file(folder / "a.npy", npy_file("'<f8'", "(2, 2, 2)", values));
  std::vector<SourcePtr> sources{open_source(folder / "a.npy")};
  if (hdf5_available()) {
    pack(*sources[0], folder / "a.h5");
    sources.push_back(open_source(folder / "a.h5"));
  }
  for (const auto& source : sources) {
    const auto name = source->name_of_sample(1);
    CHECK(source->values(1, source->whole())[1] == -1e39);
    const auto wanted = name + ": -1e+39 is beyond float32";
    for (const bool flips : {false, true})
      CHECK(has(error_text([&] { Loader(source, {.batch = 2, .flips = flips}).batch(0, 0); }), wanted));
    CHECK(Loader(source, {.batch = 2, .dtype = DType::float64}).batch(0, 0).x.to_vector()[5] == -1e39);
    CHECK(Loader(source, {.batch = 1, .samples = {0}}).batch(0, 0).x.to_vector()[3] == 4);
    const ViewLoader views(source, {.batch = 2, .views = {{augment::Recipe{}, 1}}});
    CHECK(has(error_text([&] { (void)views.batch(0, 0); }), wanted));
  }
  // Targets.
  const auto x = from_vector({2, 1, 1, 1, 1}, {1, 2}, DType::float32), y = from_vector({2, 1}, {3, 1e300}, DType::float64);
  const auto source = from_tensors(x, y);
  CHECK(has(error_text([&] { Loader(source, {.batch = 2, .target_dtype = DType::float32}).batch(0, 0); }),
            "1e+300 is beyond float32"));
  CHECK(Loader(source, {.batch = 2, .target_dtype = DType::float64}).batch(0, 0).y.to_vector()[1] == 1e300);
}
