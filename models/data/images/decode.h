#pragma once
// Decodes pictures with libpng and libjpeg-turbo. In builds without one of them its function throws an Error that says what to
// install.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mpigrad::data {

// Pixels [height, width, channels], row-major, 0 to 255 or 0 to 65535; 1 channel is grey, 3 are red, green and blue.
struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  int bits = 8;                      // of a value, 8 or 16
  std::vector<std::uint8_t> values;  // for 16 bits two bytes each, in this processor's byte order
};

bool png_available();
bool jpeg_available();
// The picture in a file's bytes, with `channels` channels, 1 or 3 (0: as stored). Values are those of the file: no gamma or
// colour profile is applied; 1, 2 and 4 bits of PNG are stretched to 0 to 255, palettes become their colours, an alpha channel
// that is opaque everywhere is dropped. Colour becomes grey by ITU-R BT.601: 0.299 red + 0.587 green + 0.114 blue. Errors, with
// `name`: truncated, corrupt, more than 2^28 pixels, a PNG with a transparent pixel, a JPEG in CMYK.
Pixels decode_png(std::span<const std::byte> bytes, int channels, const std::string& name);
Pixels decode_jpeg(std::span<const std::byte> bytes, int channels, const std::string& name);

}  // namespace mpigrad::data
