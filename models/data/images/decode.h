#pragma once
// Pictures by libpng and libjpeg-turbo. In builds without one of them its function is an error that says what to install.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mpigrad::data {

// Pixels [height, width, channels], row-major, 0 to 255; 1 channel is grey, 3 are red, green and blue.
struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> values;
};

bool png_available();
bool jpeg_available();
// The picture in a file's bytes, with `channels` channels (0: as stored). Transparent pixels are laid on black, 16 bits become 8.
// Errors, with `name`: truncated, corrupt, more than 2^28 pixels, a JPEG in CMYK.
Pixels decode_png(std::span<const std::byte> bytes, int channels, const std::string& name);
Pixels decode_jpeg(std::span<const std::byte> bytes, int channels, const std::string& name);

}  // namespace mpigrad::data
