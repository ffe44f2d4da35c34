// Orientation and spacing of a training's volumes, which weights keep: what differs is refused with both, on any number of ranks.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "models/data/sources/folder.h"
#include "models/data/sources/memory.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// A volume of 2 x 2 x 2 cells; signs of x, y, z, none: the file says no orientation.
void write_volume(const std::filesystem::path& path, const std::array<float, 3>& spacing, const std::array<int, 3>& signs) {
  auto file = nifti_file({2, 2, 2}, 2, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto put = [&](std::size_t at, float value) {
    data::Bytes bytes;
    append(bytes, std::bit_cast<std::uint32_t>(value), false);
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t a = 0; a < 3; ++a) put(80 + 4 * a, spacing[a]), put(280 + 20 * a, spacing[a] * static_cast<float>(signs[a]));
  file[254] = static_cast<std::byte>(signs[0] != 0);
  write_file(path, file);
}

// Files 0.nii, 1.nii, ...
struct Volumes {
  Folder folder;
  void add(const std::array<float, 3>& spacing, const std::array<int, 3>& signs) {
    write_volume(folder.path / fmt::format("{}.nii", count++), spacing, signs);
  }
  int count = 0;
};
constexpr std::array<int, 3> ras{1, 1, 1}, lps{-1, -1, 1}, unsaid{0, 0, 0};

}  // namespace

TEST_CASE("geometry: weights keep orientation and spacing, and volumes that differ are refused with both") {
  Volumes training, turned, wider, nearly, none;
  for (const float z : {1.5F, 2.0F, 1.0F}) training.add({1, 1, z}, ras);
  for (int i = 0; i < 3; ++i) nearly.add({1.005F, 1, 1.2F}, ras), none.add({1, 1, 1}, unsaid);
  turned.add({1, 1, 1}, ras), turned.add({1, 1, 1}, ras), turned.add({1, 1, 1}, lps);
  wider.add({1, 1, 1}, ras), wider.add({1, 1, 2.2F}, ras), wider.add({3, 3, 3}, ras);
  for (const int ranks : {1, 2, 4})
    check_on_ranks(ranks, "geometry", [&](const Communicator& world) {
      for (const bool whole : {true, false}) {
        const auto open = [&](const Volumes& volumes) -> data::SourcePtr {
          if (whole) return std::make_shared<data::VolumeFolder>(volumes.folder.path, "");
          return trainer::chosen(std::make_shared<data::FolderSource>(volumes.folder.path), {0, 1, 2}, "", {});
        };
        const auto of = [&](const Volumes& volumes, bool resampled = false) {
          return trainer::geometry_of(world, *open(volumes), {0, 1, 2}, resampled);
        };
        const auto geometry = of(training);
        require(geometry.text() == "RAS, (1 to 2) x 1 x 1 mm [z, y, x]", "[test] {}", geometry.text());
        require(of(training, true).text() == "RAS", "[test] resampled");
        require(of(none).text() == "no orientation, 1 x 1 x 1 mm [z, y, x]", "[test] {}", of(none).text());
        const auto mixed = error_text([&] { of(turned); });
        require(has(mixed, "0.nii is stored RAS, ") && has(mixed, "2.nii LPS: the volumes of a training have one orientation"),
                "[test] {}", mixed);
        CheckpointInfo info;
        info.notes[trainer::geometry_note] = trainer::to_note(geometry);
        const auto other = [&](const Volumes& volumes, bool resampled = false) {
          return error_text([&] { trainer::require_same_geometry(world, "w.h5", info, *open(volumes), {0, 1, 2}, resampled); });
        };
        for (const auto* same : {&training, &nearly}) require(other(*same).empty(), "[test] {}", other(*same));
        require(has(other(turned), "2.nii is stored LPS, 1 x 1 x 1 mm [z, y, x], w.h5 was trained on RAS, (1 to 2) x 1 x 1 mm"),
                "[test] {}", other(turned));
        require(has(other(turned, true), "2.nii is stored LPS"), "[test] resampled, {}", other(turned, true));
        require(has(other(wider), "1.nii is stored RAS, 2.2 x 1 x 1 mm [z, y, x], w.h5 was trained on RAS, (1 to 2) x 1 x 1 mm"),
                "[test] {}", other(wider));
        require(other(wider, true).empty(), "[test] resampled, {}", other(wider, true));
        require(other(none).empty(), "[test] {}", other(none));  // a warning
        info.notes[trainer::geometry_note] = std::string(1000, '[');
        require(has(other(training), "w.h5: the note 'geometry' has brackets in brackets, more than 64 deep"), "[test] {}",
                other(training));
        info.notes.clear();
        require(other(turned).empty() && other(wider).empty(), "[test] older weights");
      }
      const auto numbers = data::from_tensors(zeros({2, 2, 2, 2, 1}), zeros({2}));
      require(!trainer::geometry_of(world, *numbers, {0, 1}).known(), "[test] numbers have a geometry");
    });
}
