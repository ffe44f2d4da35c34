#include "models/data/records/frames.h"

#include <algorithm>
#include <array>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"
#include "models/data/records/crc32c.h"

namespace mpigrad::data {
namespace {

// Reads a little-endian number.
template <class T>
std::string bytes_of(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  return bytes;
}

template <class T>
T number_in(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

std::size_t read(ByteStream& stream, char* to, std::size_t count) { return stream.read(reinterpret_cast<std::byte*>(to), count); }

}  // namespace

std::string framed(std::string_view record) {
  auto frame = bytes_of(static_cast<std::uint64_t>(record.size()));
  frame += bytes_of(masked_crc32c(frame));
  frame += record;
  return frame += bytes_of(masked_crc32c(record));
}

std::uint64_t record_length(std::string_view start, const std::string& name) {
  require(start.size() == frame_start, "[tfrecord] {}: the file ends in a frame", name);
  require(masked_crc32c(start.substr(0, 8)) == number_in<std::uint32_t>(start.substr(8)),
          "[tfrecord] {}: not a TFRecord file, or damaged: the checksum of a record's length is wrong", name);
  return number_in<std::uint64_t>(start);
}

namespace {

// The length of the next record; none at the stream's end.
std::optional<std::uint64_t> next_length(ByteStream& stream, const std::string& name) {
  std::array<char, frame_start> start{};
  const auto got = read(stream, start.data(), start.size());
  if (got == 0) return std::nullopt;
  const auto length = record_length({start.data(), got}, name);
  const auto left = stream.most_left();
  require(static_cast<double>(length) + frame_end <= left, "[tfrecord] {}: truncated: a record of {} bytes, {:.0f} are left",
          name, length, left);
  return length;
}

// Pieces that are still in the cache when their checksum is computed.
constexpr std::size_t bytes_at_once = 1 << 17;

// Reads `count` bytes of a record of `length` bytes.
void read_all(ByteStream& stream, char* to, std::size_t count, std::uint64_t length, const std::string& name) {
  require(read(stream, to, count) == count, "[tfrecord] {}: truncated in a record of {} bytes", name, length);
}

}  // namespace

bool next_record(ByteStream& stream, const std::string& name, std::string& record) {
  const auto length = next_length(stream, name);
  if (!length) return false;
  if (record.capacity() < *length)
    require_host_memory(fmt::format("[tfrecord] {}: a record", name), static_cast<double>(*length));
  // A packed stream may claim more bytes than arrive: only memory for bytes that arrive is touched.
  if (record.size() > *length) record.resize(*length);
  record.reserve(*length);
  std::uint32_t checksum = 0;
  for (std::size_t used = 0; used < *length;) {
    const auto step = std::min<std::uint64_t>(*length - used, bytes_at_once);
    if (record.size() < used + step) record.resize(used + step);
    read_all(stream, record.data() + used, step, *length, name);
    checksum = crc32c({record.data() + used, step}, checksum);
    used += step;
  }
  std::array<char, frame_end> end{};
  read_all(stream, end.data(), end.size(), *length, name);
  require(masked(checksum) == number_in<std::uint32_t>({end.data(), end.size()}),
          "[tfrecord] {}: damaged: the checksum of a record is wrong", name);
  return true;
}

std::uint64_t pass_record(ByteStream& stream, const std::string& name) {
  const auto length = next_length(stream, name);
  if (!length) return 0;
  const auto rest = *length + frame_end;
  require(stream.pass(rest) == rest, "[tfrecord] {}: truncated in a record of {} bytes", name, *length);
  return frame_start + rest;
}

}  // namespace mpigrad::data
