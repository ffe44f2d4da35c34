#pragma once
// What zlib and libzip unpack. In builds without one of them its functions are errors that say what to install.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace mpigrad::data {

using Bytes = std::vector<std::byte>;

bool gzip_available();
// What the gzip members in `compressed` hold, one after the other. `name` is for messages. Errors: truncated, corrupt.
Bytes gunzip(std::span<const std::byte> compressed, const std::string& name);
// One gzip member.
Bytes gzip(std::span<const std::byte> plain);

bool zip_available();
// The names of the files in a zip archive, in its order. Errors: no archive.
std::vector<std::string> zip_names(const std::filesystem::path& path);
// One of them, its checksum verified. Errors: no such file in it, truncated, corrupt.
Bytes unzip(const std::filesystem::path& path, const std::string& name);

}  // namespace mpigrad::data
