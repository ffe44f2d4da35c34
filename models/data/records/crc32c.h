#pragma once
// The checksum of TFRecord frames.

#include <cstdint>
#include <string_view>

namespace mpigrad::data {

// CRC-32C (Castagnoli): reflected polynomial 0x82f63b78 (RFC 3720, appendix B.4). Uses the processor's instruction if it has one.
// `before` is the checksum of the preceding bytes.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);
// The same checksum by a table, a byte at a time: the reference.
std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before = 0);
// Masked as in frames, so that a checksum of bytes that contain checksums is not weak (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked(std::uint32_t checksum);
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace mpigrad::data
