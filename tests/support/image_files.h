#pragma once
// Writes pictures to files, for tests of readers.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace mpigrad::testing {

// True if this build has libpng and libjpeg-turbo; without them the other functions throw.
bool pictures_can_be_written();
// values: [height, width, channels] with 1 or 3 channels.
void write_png(const std::filesystem::path& path, int height, int width, int channels, const std::vector<std::uint8_t>& values);
void write_jpeg(const std::filesystem::path& path, int height, int width, int channels, const std::vector<std::uint8_t>& values);

}  // namespace mpigrad::testing
