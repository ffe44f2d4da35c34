#pragma once
// Volumes as windows need them, unpacked, turned and resampled, in files of a folder, from which a window is read by its own
// cells. Processes and later runs share the folder.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/layout.h"

namespace mpigrad::data {

// What a file holds. The key chooses the file. A file of another key, of another state or of another build of this library is not
// read, but replaced.
struct CachedVolume {
  std::string key, state;
  Shape extents;          // [D, H, W]
  std::int64_t cell = 1;  // bytes of a cell
};

class VolumeCache {
 public:
  // Makes the folder if it does not exist. Error: it cannot be made, it is not this user's, or others may change it.
  explicit VolumeCache(const std::filesystem::path& folder);

  // Reads a box of the volume. False: there is no such file, or it cannot be read. Error: it is not this user's, or others may
  // change it.
  bool read(const CachedVolume& volume, const Box& box, std::byte* out) const;
  // Writes the bytes of the whole volume. False: they could not be written, for example because the disk is full, and a warning
  // says so once in a process.
  bool add(const CachedVolume& volume, std::span<const std::byte> bytes) const;

 private:
  std::filesystem::path path_of(const CachedVolume& volume) const;
  std::string end_of(const CachedVolume& volume) const;  // of a file, after the volume's bytes
  std::filesystem::path folder_;
  std::string code_;
};

// The sizes of files, and the times of the last change of their content and of themselves. Error: a file is missing.
std::string state_of(const std::vector<std::filesystem::path>& files);

}  // namespace mpigrad::data
