// Labels in NIfTI-1: invalid labels are refused, written labels have the cells of a given file and can be read back; real
// volumes.

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
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
#include "tests/models/data/nifti_files.h"
#include "tests/support/files.h"
#include "tests/support/shared_data.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

Bytes file_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

}  // namespace

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
  CHECK(with(2.0009F) == "");        // as a slope and an intercept leave it
  CHECK(read_nifti_labels(path).values[(1 * 3 + 2) * 4 + 3] == 2);
  CHECK(has(with(2.002F), "is not a label"));
  CHECK(has(with(2.5F), "l.nii: 2.5 at [1, 2, 3] [z, y, x] is not a label: labels are whole numbers of up to 2147483647"));
  CHECK(with(-1) == "");  // rules for labels say what it is
  CHECK(has(with(-2147483648.0F), "l.nii: -2147483648 at [1, 2, 3]"));
  CHECK(has(with(2147483648.0F), "l.nii: 2147483648 at [1, 2, 3]"));
  CHECK(has(with(std::numeric_limits<float>::quiet_NaN()), "l.nii: nan at [1, 2, 3]"));
  CHECK(has(with(std::numeric_limits<float>::infinity()), "l.nii: inf at [1, 2, 3]"));
  CHECK(has(refused(nifti_file({2, 1, 1, 2}, 2, {0, 1, 2, 4})), "l.nii: 2 channels"));
  CHECK(has(refused(nifti_file({2, 1, 1}, 2, {0, 1}, {.slope = 0.5F})), "l.nii: 0.5 at [0, 0, 1]"));
  CHECK(refused(nifti_file({2, 1, 1}, 4, {0, 3}, {.slope = 2, .shift = 1})) == "");
  CHECK(read_nifti_labels(path).values == std::vector<std::int32_t>{1, 7});
}

TEST_CASE("nifti: labels are written onto the cells of a file") {
  const Folder folder;
  std::vector<std::int32_t> labels(24);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * i % 7);
  for (const bool big : {false, true}) {
    for (const int units : {0, 1, 2, 3}) {
      write_file(folder / "v.nii", full_file(big, 1, units == 0 ? 0 : 2, static_cast<std::uint8_t>(units)));
      const auto like = read_nifti_header(folder / "v.nii");
      for (const char* name : {"l.nii", "l.nii.gz", "l.nii.Gz"}) {
        const bool of_gzip = std::string(name) != "l.nii";
        if (!gzip_available() && of_gzip) {
          CHECK(has(error_text([&] { write_nifti_labels(folder / name, labels, like); }),
                    std::string(name) + ": this build cannot write gzip"));
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
        CHECK(packed == of_gzip);
      }
    }
  }
  // 352 bytes plus one per label, or four if a label needs them; the minimum for either.
  const auto like = read_nifti_header(folder / "v.nii");
  CHECK(fs::file_size(folder / "l.nii") == 352 + 24);
  for (const std::int32_t most : {255, 256, std::numeric_limits<std::int32_t>::max()}) {
    labels[5] = most;
    write_nifti_labels(folder / "l.nii", labels, like, true);
    CHECK(read_nifti_labels(folder / "l.nii").values == labels);
    CHECK(fs::file_size(folder / "l.nii") == 352 + (most < 256 ? 24U : 96U));
  }
  // From a file with several channels and a slope: labels have one channel and no slope.
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
  const auto refused = [&](const char* name, const std::vector<std::int32_t>& values, const VolumeHeader& geometry) {
    return error_text([&] { write_nifti_labels(folder / name, values, geometry); });
  };
  const auto before = file_bytes(folder / "v.nii");
  CHECK(has(refused("v.nii", labels, like), "v.nii: exists already; it is replaced only when asked to overwrite"));
  CHECK(file_bytes(folder / "v.nii") == before);
  CHECK(has(refused("l.nii", std::vector<std::int32_t>(23), like), "l.nii: 23 labels for the 24 cells of [2, 3, 4]"));
  auto negative = labels;
  negative[23] = -3;
  CHECK(has(refused("l.nii", negative, like), "l.nii: -3 at [1, 2, 3] [z, y, x] is not a label"));
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
  limit.rlim_cur = 30000;  // a limit on the file size, like a full disk
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
    // The same numbers as read_nifti()'s before scaling; and labels written and read back.
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
