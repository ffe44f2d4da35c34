#include "tests/ops/conformance/npy.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace mpigrad::testing {
namespace {

DType dtype_of_descriptor(const std::string& file, std::string_view descriptor) {
  constexpr std::pair<std::string_view, DType> known[] = {{"<f4", DType::float32}, {"<f8", DType::float64}, {"<i8", DType::int64},
                                                          {"<i4", DType::int32},   {"<i2", DType::int16},   {"|u1", DType::uint8},
                                                          {"|b1", DType::boolean}};
  for (const auto& [name, type] : known)
    if (name == descriptor) return type;
  fail("[npy] element type {} is not supported: {}", descriptor, file);
}

// What follows `'key': ` in the header's Python dictionary.
std::string_view value_of(const std::string& file, std::string_view header, std::string_view key) {
  const std::string quoted = "'" + std::string(key) + "': ";
  const auto at = header.find(quoted);
  require(at != std::string_view::npos, "[npy] the header has no {}: {}", key, file);
  return header.substr(at + quoted.size());
}

Shape parse_shape(const std::string& file, std::string_view text) {
  require(!text.empty() && text.front() == '(', "[npy] the shape is not a tuple: {}", file);
  Shape shape;
  std::int64_t number = -1;
  for (char c : text.substr(1)) {
    if (c >= '0' && c <= '9') {
      number = (number < 0 ? 0 : number) * 10 + (c - '0');
      continue;
    }
    if (number >= 0) shape.push_back(number);
    number = -1;
    if (c == ')') return shape;
  }
  fail("[npy] the shape does not end: {}", file);
}

}  // namespace

Tensor read_npy(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[npy] cannot be opened: {}", file);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  require(bytes.size() >= 12 && bytes.compare(0, 6, "\x93NUMPY") == 0, "[npy] not a .npy file: {}", file);

  // The header's length is two bytes long in version 1 and four later.
  const std::size_t width = bytes[6] == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length * 256 + static_cast<unsigned char>(bytes[8 + i]);
  const std::size_t start = 8 + width + length;
  require(start <= bytes.size(), "[npy] the file ends in its header: {}", file);
  const auto header = std::string_view(bytes).substr(8 + width, length);

  require(value_of(file, header, "fortran_order").starts_with("False"), "[npy] Fortran order is not supported: {}", file);
  const auto descriptor = value_of(file, header, "descr");
  const DType type = dtype_of_descriptor(file, descriptor.substr(1, descriptor.find('\'', 1) - 1));
  Tensor result({parse_shape(file, value_of(file, header, "shape")), type});
  require(static_cast<std::size_t>(result.bytes()) == bytes.size() - start, "[npy] {} bytes of elements, {} expected: {}",
          bytes.size() - start, result.bytes(), file);
  if (result.bytes() > 0) std::memcpy(result.raw(), bytes.data() + start, static_cast<std::size_t>(result.bytes()));
  return result;
}

}  // namespace mpigrad::testing
