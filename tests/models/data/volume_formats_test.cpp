// Properties that hold for every row of the table of formats.

#include "models/data/volumes/volume_formats.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "models/data/sources/open.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volumes.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

TEST_CASE("volume formats: names, stems and messages follow the table") {
  CHECK(is_volume("a/b.nii"));
  CHECK(is_volume("B.NII.gz"));
  CHECK_FALSE(is_volume("a.nii/b.png"));
  CHECK(volume_stem("a/b.c.nii.gz") == "b.c");
  CHECK(volume_stem("b.NII") == "b");
  CHECK(volume_stem("b.png") == "b.png");
  CHECK(label_file_name("a/b.nii") == "b.nii");
  CHECK(label_file_name("sample_00001") == "sample_00001.nii.gz");
  const Folder folder;
  write_file(folder / "words.txt", {});
  for (const auto& format : volume_formats()) {
    CHECK(has(volume_format_names(), std::string(format.name)));
    for (const auto ending : format.endings) {
      const auto pattern = "*" + std::string(ending);
      CHECK(has(volume_patterns(), pattern));
      for (const auto& text :
           {error_text([&] { volume_format_of("a.txt"); }), error_text([&] { open_source(folder / "words.txt"); }),
            error_text([&] { VolumeFolder(folder.path, ""); })})
        CHECK(has(text, pattern));
      CHECK(find_volume_format("x" + std::string(ending)) == &format);
    }
  }
}

TEST_CASE("volume formats: labels are written on the cells of any header and read back") {
  const Folder folder;
  auto turned = plain_volume_header({2, 3, 4}, {3, 2, 1});
  turned.affine = {-1, 0, 0, 90, 0, -2, 0, 70, 0, 0, 3, -60};
  auto nowhere = plain_volume_header({2, 3, 4}, {3, 2, 1});
  nowhere.placed = false;
  std::vector<std::int32_t> labels(24);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * i % 7);
  for (const auto& format : volume_formats())
    for (const auto ending : format.endings) {
      if (format.write_labels == nullptr || (ending.ends_with(".gz") && !gzip_available())) continue;
      const auto path = folder.path / ("l" + std::string(ending));
      for (const auto& like : {turned, nowhere}) {
        format.write_labels(path, labels, like, true);
        const auto back = format.read_labels(path);
        CHECK(back.values == labels);
        CHECK(difference(back.header, like) == "");
        CHECK(orientation_of(back.header) == (like.placed ? "LPS" : ""));
        CHECK(format.read_header(path).extents == like.extents);
        CHECK(format.read_values(path).values[23] == static_cast<float>(labels[23]));
        // With the cells of a file that was read.
        format.write_labels(path, labels, back.header, true);
        CHECK(difference(format.read_header(path), like) == "");
      }
      const auto scaled = format.read_scaled(path).values;
      CHECK((scaled[0] == 0 && *std::max_element(scaled.begin(), scaled.end()) == 1));
      CHECK(has(error_text([&] { format.write_labels(path, labels, turned, false); }), "exists already"));
    }
}
