#pragma once
// Volumes as windows need them, unpacked, turned and resampled, in files of a folder: a window then reads its own cells, not a
// whole volume. Processes and later runs share the folder.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/layout.h"

namespace mpigrad::data {

class VolumeCache {
 public:
  // Makes the folder if it does not exist. Error: it cannot be made, it is not this user's, or others may change it.
  explicit VolumeCache(const std::filesystem::path& folder);

  // Reads the box of the volume [D, H, W] with cells of `cell` bytes that `what` describes. False: there is no whole file of it.
  // Error: the file is not this user's, others may change it, or it cannot be read.
  bool read(const std::string& what, const Shape& extents, std::int64_t cell, const Box& box, std::byte* out) const;
  // Keeps the bytes of a whole volume. If they cannot be written, for example because the disk is full, says so once in a
  // process, and keeps none.
  void add(const std::string& what, std::span<const std::byte> bytes) const;

 private:
  std::filesystem::path path_of(const std::string& what) const;
  std::filesystem::path folder_;
};

// The absolute paths of files, their sizes, and the times of the last change of content and of the file. Error: a file is
// missing.
std::string identity(const std::vector<std::filesystem::path>& files);

}  // namespace mpigrad::data
