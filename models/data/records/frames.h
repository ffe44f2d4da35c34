#pragma once
// TFRecord files: a row of records, each framed by its length, the length's checksum, the bytes and their checksum
// (tensorflow/core/lib/io/record_writer.h).

#include <cstdint>
#include <string>
#include <string_view>

#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

// Bytes around a record's own: before it, and behind.
inline constexpr std::size_t frame_start = 12, frame_end = 4;

std::string framed(std::string_view record);

// The length that the first 12 bytes of a frame say. Error, with the file: a wrong checksum.
std::uint64_t record_length(std::string_view start, const std::string& name);

// The next record of a stream, into `record`, whose memory is used again; false at the stream's end. Errors, with the file: cut
// off, a wrong checksum, more bytes than memory is left.
bool next_record(ByteStream& stream, const std::string& name, std::string& record);
// The same, but its bytes are passed over, and not checked. The bytes of the frame; 0 at the stream's end.
std::uint64_t pass_record(ByteStream& stream, const std::string& name);

}  // namespace mpigrad::data
