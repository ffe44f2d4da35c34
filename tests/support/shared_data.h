#pragma once
// Location of reference data that is not part of the source tree: $MPIGRAD_SHARED, else the folder shared/ next to the tree.
// Tests that need missing data are skipped.

#include <cstdlib>
#include <filesystem>
#include <string>

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif

namespace mpigrad::testing {

inline const char* const no_shared_data = "the reference data is not on this machine (MPIGRAD_SHARED says where it is)";

// The path of `relative` below the data folder, or an empty path if it does not exist.
inline std::filesystem::path shared_data(const std::string& relative) {
  const char* told = std::getenv("MPIGRAD_SHARED");
  const std::filesystem::path root =
      told != nullptr ? std::filesystem::path(told) : std::filesystem::path(MPIGRAD_SOURCE_ROOT) / ".." / "shared";
  const auto path = root / "data" / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace mpigrad::testing
