#pragma once
// TFRecord files: a sequence of records, each framed by its length, the length's checksum, the bytes and their checksum
// (tensorflow/core/lib/io/record_writer.h).

#include <cstdint>
#include <string>
#include <string_view>

#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

// Bytes of a frame before and after a record's own bytes.
inline constexpr std::size_t frame_start = 12, frame_end = 4;

std::string framed(std::string_view record);

// The length in the first 12 bytes of a frame. Error, with the file: a wrong checksum.
std::uint64_t record_length(std::string_view start, const std::string& name);

// Reads the next record of a stream into `record`, whose memory is reused; false at the stream's end. Errors, with the file:
// truncated, a wrong checksum, more bytes than the available memory.
bool next_record(ByteStream& stream, const std::string& name, std::string& record);
// Skips the next record without checking its bytes. Returns the bytes of the frame; 0 at the stream's end.
std::uint64_t pass_record(ByteStream& stream, const std::string& name);

}  // namespace mpigrad::data
