#include "models/data/records/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace mpigrad::data {
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

#if defined(__x86_64__)
// Eight bytes per instruction; each instruction waits for the previous one, and this is still several GB/s.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_processor(std::string_view bytes, std::uint32_t before) {
  std::uint64_t value = ~before;
  const char* at = bytes.data();
  auto left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto rest = static_cast<std::uint32_t>(value);
  for (; left > 0; ++at, --left) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(*at));
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before) {
  std::uint32_t value = ~before;
  for (const char c : bytes) value = (value >> 8) ^ table[(value ^ static_cast<unsigned char>(c)) & 0xff];
  return ~value;
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  if (has) return crc32c_by_processor(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

std::uint32_t masked(std::uint32_t checksum) { return ((checksum >> 15) | (checksum << 17)) + 0xa282ead8U; }
std::uint32_t masked_crc32c(std::string_view bytes) { return masked(crc32c(bytes)); }

}  // namespace mpigrad::data
