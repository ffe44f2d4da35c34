#include "models/train/tensorboard/crc32c.h"

#include <array>

namespace mpigrad::tensorboard {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = value;
  }
  return table;
}
constexpr auto table = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t value = ~0U;
  for (const char c : bytes) value = (value >> 8) ^ table[(value ^ static_cast<unsigned char>(c)) & 0xff];
  return ~value;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const auto value = crc32c(bytes);
  return ((value >> 15) | (value << 17)) + 0xa282ead8U;
}

}  // namespace mpigrad::tensorboard
