#include "examples/contrastive/npy.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "models/data/sources/formats.h"

namespace mpigrad::contrast {

void write_npy(const std::filesystem::path& path, const Tensor& x) {
  const auto head = data::npy_header(x.shape(), x.dtype());

  // Under another name until it is complete.
  auto temporary = path;
  temporary += ".part";
  std::error_code error;
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  int reason = errno;
  require(file != nullptr, "[npy] {} cannot be written: {}", path.string(), std::strerror(reason));
  const auto bytes = static_cast<std::size_t>(x.bytes());
  bool written = std::fwrite(head.data(), 1, head.size(), file) == head.size() && std::fwrite(x.raw(), 1, bytes, file) == bytes &&
                 std::fflush(file) == 0;
  reason = errno;
  written = std::fclose(file) == 0 && written;
  if (written) std::filesystem::rename(temporary, path, error);
  if (!written || error) {
    const auto why = written ? error.message() : std::string(std::strerror(reason));
    std::filesystem::remove(temporary, error);
    fail("[npy] {} could not be written completely: {}", path.string(), why);
  }
}

}  // namespace mpigrad::contrast
