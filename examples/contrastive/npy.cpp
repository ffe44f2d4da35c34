#include "examples/contrastive/npy.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace mpigrad::contrast {

void write_npy(const std::filesystem::path& path, const Tensor& x) {
  const char* type = x.dtype() == DType::float32 ? "<f4" : x.dtype() == DType::float64 ? "<f8" : "<i8";
  require(x.dtype() == DType::float32 || x.dtype() == DType::float64 || x.dtype() == DType::int64,
          "[npy] {}: float32, float64 and int64 are written, not {}", path.string(), x);
  std::string extents;
  for (const auto extent : x.shape()) extents += fmt::format("{}, ", extent);
  auto header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, extents);
  // Magic, version and length are 10 bytes; with them the data begin at a multiple of 64.
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ').push_back('\n');
  std::string head("\x93NUMPY\x01\x00", 8);
  head.push_back(static_cast<char>(header.size() & 0xff)), head.push_back(static_cast<char>(header.size() >> 8));
  head += header;

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
