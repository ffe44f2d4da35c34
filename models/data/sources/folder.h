#pragma once
// A folder of pictures or of volumes, one sample in each file.

#include <optional>

#include "models/data/sources/memory.h"

namespace mpigrad::data {

struct FolderOptions {
  // [H, W] or [D, H, W] that samples of other extents get, and how: none: all files have the same.
  Shape extents{};
  std::optional<augment::Fit> fit{};  // none: cover for pictures, pad for volumes
  int channels = 0;                   // of pictures, 1 or 3; 0: as the first file, and all files must
  int threads = 2;                    // that decode; 0: the one that asks
  std::vector<Labels> labels{};       // instead of the classes, one for each file in the order of their names
};

// Files *.png, *.jpg and *.jpeg, or volumes (volume_formats.h), in the folder itself (no classes) or in its folders, each of
// which is a class: numbered from 0 in the order of their names. Others are passed over. One file is decoded when the source is
// made, the others when they are asked for, whole. Opening a million small files slows file systems down: pack() them.
class FolderSource : public Source {
 public:
  // Errors, with the file: nothing to read, pictures and volumes together, files beside folders, a class without files, labels of
  // another number; and when a file is asked for: corrupt, truncated, with
  // transparent pixels, of other extents, channels or bits.
  explicit FolderSource(const std::filesystem::path& path, FolderOptions options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;  // uint8, or float32 in [0, 1] for volumes
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  JobQueue& queue() const override;  // which decodes
  bool targets_in_memory() const override { return true; }
  // Decodes them.
  void check(std::int64_t part, std::int64_t parts) const override;

  const std::vector<std::string>& classes() const;  // names of the folders

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Whether a file's name is that of a picture; is_volume() of volume_formats.h tells volumes.
bool is_picture(const std::filesystem::path& path);

}  // namespace mpigrad::data
