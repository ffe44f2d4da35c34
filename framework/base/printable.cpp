#include "framework/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace mpigrad {
namespace {

// The number of bytes of the UTF-8 character at `at`, and the character; 0: no valid character.
std::size_t character_at(std::string_view text, std::size_t at, std::uint32_t& character) {
  const auto byte = [&](std::size_t i) -> std::uint32_t { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(at);
  if (first < 0x80) return character = first, 1;
  const std::size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first >= 0xf5 || at + length > text.size()) return 0;
  character = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte(at + i) & 0x3f);
  }
  constexpr std::uint32_t least[]{0, 0, 0x80, 0x800, 0x10000};  // smaller values would be overlong encodings
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  return character >= least[length] && character <= 0x10ffff && !surrogate ? length : 0;
}

bool harmless(std::uint32_t c) {
  const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  const bool direction = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  const bool line = c == 0x2028 || c == 0x2029;
  return !control && !direction && !line;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (result.size() >= most) return result + "...";
    std::uint32_t character = 0;
    const auto length = character_at(text, at, character);
    if (length > 0 && harmless(character)) result += text.substr(at, length);
    else
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i)
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at + i]));
    at += std::max<std::size_t>(length, 1);
  }
  return result;
}

}  // namespace mpigrad
