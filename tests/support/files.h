#pragma once
// Folders that tests write to.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/hdf5/hdf5_file.h"
#include "tests/support/errors.h"
#include "tests/support/skip.h"

namespace mpigrad::testing {

// A new temporary folder, removed at the end of its scope.
struct Folder {
  std::filesystem::path path;
  Folder() {
    auto name = (std::filesystem::temp_directory_path() / "mpigrad_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("[test] {} cannot be made", name);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
  }
};

// Bytes that this process has read from files so far, including reads from the system's cache; -1 if the system does not count
// them.
inline std::int64_t bytes_read() {
  std::ifstream stream("/proc/self/io");
  std::string word;
  std::int64_t count = -1;
  while (stream >> word)
    if (word == "rchar:" && stream >> count) return count;
  return -1;
}

// True if this build has no HDF5; then the surrounding test counts as skipped.
inline bool without_hdf5(const char* name) {
  if (!hdf5_available()) skip_test(name, "this build has no HDF5");
  return !hdf5_available();
}

}  // namespace mpigrad::testing
