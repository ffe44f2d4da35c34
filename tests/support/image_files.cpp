#include "tests/support/image_files.h"

#include <png.h>
#include <turbojpeg.h>

#include <fstream>

#include "framework/base/error.h"

namespace mpigrad::testing {

bool pictures_can_be_written() { return true; }

void write_png(const std::filesystem::path& path, int height, int width, int channels, const std::vector<std::uint8_t>& values) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height), image.width = static_cast<png_uint_32>(width);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  require(png_image_write_to_file(&image, path.c_str(), 0, values.data(), 0, nullptr) != 0, "[test] {}: {}", path.string(),
          image.message);
}

void write_jpeg(const std::filesystem::path& path, int height, int width, int channels, const std::vector<std::uint8_t>& values) {
  const auto encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int status = tjCompress2(encoder, values.data(), width, 0, height, channels == 3 ? TJPF_RGB : TJPF_GRAY, &bytes, &size,
                                 channels == 3 ? TJSAMP_444 : TJSAMP_GRAY, 100, 0);
  if (status == 0)
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  tjFree(bytes);
  tjDestroy(encoder);
  require(status == 0, "[test] {}: not written", path.string());
}

}  // namespace mpigrad::testing
