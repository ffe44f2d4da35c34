#pragma once
// The checksum of TFRecord frames.

#include <cstdint>
#include <string_view>

namespace mpigrad::data {

// CRC-32C (Castagnoli): reflected polynomial 0x82f63b78 (RFC 3720, appendix B.4). By the processor where it can.
// `before` is that of the bytes that come before these.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);
// The same by a table, a byte at a time: the reference.
std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before = 0);
// As frames store it, so that a checksum of bytes that hold checksums is no weak one (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked(std::uint32_t checksum);
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace mpigrad::data
