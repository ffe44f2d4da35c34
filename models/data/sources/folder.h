#pragma once
// A folder of pictures or of volumes, one sample in each file.

#include <optional>

#include "models/data/sources/memory.h"

namespace mpigrad::data {

struct FolderOptions {
  // [H, W] or [D, H, W] to which samples of other extents are fitted. None: all files must have the same extents.
  Shape extents{};
  std::optional<augment::Fit> fit{};  // none: cover for pictures, pad for volumes
  int channels = 0;                   // of pictures, 1 or 3; 0: as in the first file, and all files must have the same
  int threads = 2;                    // that decode; 0: the thread that asks
  std::vector<Labels> labels{};       // instead of the classes, one for each file in the order of the file names
};

// Files *.png, *.jpg and *.jpeg, or volumes (volume_formats.h), in the folder itself (no classes) or in its subfolders; each
// subfolder is a class, and classes are numbered from 0 in the order of their names. Other files are ignored. One file is decoded
// when the source is made, the others, whole, when they are asked for. Opening a million small files slows file systems down:
// pack() them.
class FolderSource : public Source {
 public:
  // Errors, with the file: no files to read, pictures mixed with volumes, files next to subfolders, a class without files, the
  // wrong number of labels; and when a file is asked for: corrupt, truncated, with transparent pixels, of other extents, channels
  // or bits.
  explicit FolderSource(const std::filesystem::path& path, FolderOptions options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;  // uint8, or float32 in [0, 1] for volumes
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  JobQueue& queue() const override;  // decodes the files
  bool targets_in_memory() const override { return true; }
  // Decodes the files.
  void check(std::int64_t part, std::int64_t parts) const override;

  const std::vector<std::string>& classes() const;  // names of the folders

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// True if the file's name is that of a picture; for volumes see is_volume() in volume_formats.h.
bool is_picture(const std::filesystem::path& path);

}  // namespace mpigrad::data
