#include <turbojpeg.h>

#include <memory>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"
#include "models/data/images/decode.h"

namespace mpigrad::data {

bool jpeg_available() { return true; }

Pixels decode_jpeg(std::span<const std::byte> bytes, int channels, const std::string& name) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  require(decoder != nullptr, "[jpeg] {}: {}", name, tjGetErrorStr2(nullptr));
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size = static_cast<unsigned long>(bytes.size());
  int width = 0, height = 0, subsampling = 0, space = 0;
  require(tjDecompressHeader3(decoder.get(), data, size, &width, &height, &subsampling, &space) == 0, "[jpeg] {}: {}", name,
          tjGetErrorStr2(decoder.get()));
  require(space != TJCS_CMYK && space != TJCS_YCCK, "[jpeg] {}: in CMYK; only grey and colour pictures are read", name);
  require(std::int64_t{width} * height <= (1 << 28), "[jpeg] {}: {} x {} pixels are too many", name, height, width);
  const bool colour = channels == 0 ? space != TJCS_GRAY : channels == 3;
  Pixels pixels{height, width, colour ? 3 : 1, 8, {}};
  require_host_memory(fmt::format("[jpeg] {}: {} x {} pixels", name, height, width), 6.0 * width * height);
  pixels.values.resize(static_cast<std::size_t>(pixels.height * pixels.width * pixels.channels));
  // The exact transforms, because the fast ones differ between machines. A warning (such as a file that ends early) is an error
  // here.
  require(tjDecompress2(decoder.get(), data, size, pixels.values.data(), width, 0, height, colour ? TJPF_RGB : TJPF_GRAY,
                        TJFLAG_ACCURATEDCT) == 0,
          "[jpeg] {}: {}", name, tjGetErrorStr2(decoder.get()));
  return pixels;
}

}  // namespace mpigrad::data
