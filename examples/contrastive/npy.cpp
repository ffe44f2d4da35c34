#include "examples/contrastive/npy.h"

#include <cstdio>
#include <memory>

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

  const auto close = [](std::FILE* file) { std::fclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "wb"), close);
  require(file != nullptr, "[npy] {} cannot be written", path.string());
  const auto bytes = static_cast<std::size_t>(x.bytes());
  const bool written = std::fwrite(head.data(), 1, head.size(), file.get()) == head.size() &&
                       std::fwrite(x.raw(), 1, bytes, file.get()) == bytes && std::fflush(file.get()) == 0;
  require(written, "[npy] {} could not be written completely", path.string());
}

}  // namespace mpigrad::contrast
