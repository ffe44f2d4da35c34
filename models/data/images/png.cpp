#include <png.h>

#include "framework/error.h"
#include "framework/tensor/host_memory.h"
#include "models/data/images/decode.h"

namespace mpigrad::data {

bool png_available() { return true; }

Pixels decode_png(std::span<const std::byte> bytes, int channels, const std::string& name) {
  struct Image : png_image {
    Image() : png_image{} { version = PNG_IMAGE_VERSION; }
    Image(const Image&) = delete;
    Image& operator=(const Image&) = delete;
    ~Image() { png_image_free(this); }
  } image;
  require(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0, "[png] {}: {}", name, image.message);
  require(std::uint64_t{image.width} * image.height <= (1U << 28), "[png] {}: {} x {} pixels are too many", name, image.height,
          image.width);
  // Without the flag 16 bits would be taken for linear light and be brightened.
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const bool colour = channels == 0 ? (image.format & PNG_FORMAT_FLAG_COLOR) != 0 : channels == 3;
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Pixels pixels{image.height, image.width, colour ? 3 : 1, {}};
  require_host_memory(fmt::format("[png] {}: {} x {} pixels", name, image.height, image.width), 2.0 * PNG_IMAGE_SIZE(image));
  pixels.values.resize(PNG_IMAGE_SIZE(image));
  const png_color black{0, 0, 0};
  require(png_image_finish_read(&image, &black, pixels.values.data(), 0, nullptr) != 0, "[png] {}: {}", name, image.message);
  return pixels;
}

}  // namespace mpigrad::data
