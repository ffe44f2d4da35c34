#include "models/data/sources/formats.h"

namespace mpigrad::data {

NumberArray read_idx(const std::filesystem::path& path) {
  const auto stream = open_stream(path);
  const auto name = path.string();
  const auto bytes = take(*stream, 4);
  require(bytes.size() == 4 && bytes[0] == std::byte{0} && bytes[1] == std::byte{0}, "[idx] {}: not an IDX file", name);
  const auto code = static_cast<int>(bytes[2]), rank = static_cast<int>(bytes[3]);
  char kind = 0;
  int size = 0;
  switch (code) {
    case 0x08: kind = 'u', size = 1; break;
    case 0x09: kind = 'i', size = 1; break;
    case 0x0B: kind = 'i', size = 2; break;
    case 0x0C: kind = 'i', size = 4; break;
    case 0x0D: kind = 'f', size = 4; break;
    case 0x0E: kind = 'f', size = 8; break;
    default: fail("[idx] {}: not an IDX file: element type 0x{:02X}", name, code);
  }
  require(rank >= 1 && rank <= Shape::max_rank, "[idx] {}: {} dimensions", name, rank);
  const auto extents = take(*stream, static_cast<std::size_t>(4 * rank));
  require(extents.size() == static_cast<std::size_t>(4 * rank), "[idx] {}: the file ends in its header", name);
  NumberArray array;
  for (int i = 0; i < rank; ++i) array.shape.push_back(big_endian<std::uint32_t>(extents.data() + 4 * i));
  const auto elements = elements_of(array.shape, fmt::format("[idx] {}", name));
  const auto type = stored_type(kind, size, true, name);
  array.type = type.type;
  array.values = converted(take_elements(*stream, elements * size, bytes_of_conversion(elements, type),
                                         fmt::format("[idx] {}", name), fmt::format("{}", array.shape)),
                           type, name);
  return array;
}

}  // namespace mpigrad::data
