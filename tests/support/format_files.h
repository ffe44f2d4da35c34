#pragma once
// Builds the bytes of small files in the formats that the library reads, from the descriptions of the formats.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "models/data/compressed/compressed.h"

namespace mpigrad::testing {

using data::Bytes;

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

template <class T>
void append(Bytes& bytes, T value, bool big = false) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * (big ? sizeof(T) - 1 - i : i)));
}
inline void append_text(Bytes& bytes, const std::string& text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

// 0, 1, 2, ... as pictures [n, h, w].
struct Bytes3 {
  int n, h, w;
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> result;
    for (int i = 0; i < n * h * w; ++i) result.push_back(static_cast<std::uint8_t>(i));
    return result;
  }
};

inline Bytes idx_file(int type, const std::vector<std::uint32_t>& extents, const std::vector<std::uint8_t>& elements) {
  Bytes bytes{std::byte{0}, std::byte{0}, static_cast<std::byte>(type), static_cast<std::byte>(extents.size())};
  for (const auto extent : extents) append(bytes, extent, true);
  for (const auto element : elements) bytes.push_back(static_cast<std::byte>(element));
  return bytes;
}

// `descriptor` and `shape` in Python's spelling.
template <class T>
Bytes npy_file(const std::string& descriptor, const std::string& shape, const std::vector<T>& values, int version = 1) {
  const bool order = shape.find("fortran") == std::string::npos;
  std::string header = "{'descr': " + descriptor + (order ? ", 'fortran_order': False" : "") + ", 'shape': " + shape + ", }";
  header.resize((version == 1 ? 118 : 116) - 1, ' ');
  header += '\n';
  Bytes bytes;
  append_text(bytes, "\x93NUMPY");
  append(bytes, static_cast<std::uint8_t>(version)), append(bytes, std::uint8_t{0});
  if (version == 1) append(bytes, static_cast<std::uint16_t>(header.size()));
  else append(bytes, static_cast<std::uint32_t>(header.size()));
  append_text(bytes, header);
  const auto* raw = reinterpret_cast<const std::byte*>(values.data());
  bytes.insert(bytes.end(), raw, raw + values.size() * sizeof(T));
  return bytes;
}

// The CRC-32 that zip and PNG use.
inline std::uint32_t checksum_of(const Bytes& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const auto byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

// A zip file without compression, as numpy.savez writes it.
inline Bytes zip_file(const std::vector<std::pair<std::string, Bytes>>& files) {
  Bytes bytes, directory;
  const auto common = [&](Bytes& to, const std::string& name, const Bytes& content) {
    append(to, std::uint16_t{20}), append(to, std::uint16_t{0}), append(to, std::uint16_t{0});  // version, flags, stored
    append(to, std::uint32_t{0}), append(to, checksum_of(content));                             // time and date, checksum
    append(to, static_cast<std::uint32_t>(content.size())), append(to, static_cast<std::uint32_t>(content.size()));
    append(to, static_cast<std::uint16_t>(name.size())), append(to, std::uint16_t{0});  // lengths of name and extra field
  };
  for (const auto& [name, content] : files) {
    const auto offset = static_cast<std::uint32_t>(bytes.size());
    append(bytes, std::uint32_t{0x04034b50}), common(bytes, name, content), append_text(bytes, name);
    bytes.insert(bytes.end(), content.begin(), content.end());
    append(directory, std::uint32_t{0x02014b50}), append(directory, std::uint16_t{20}), common(directory, name, content);
    append(directory, std::uint16_t{0}), append(directory, std::uint16_t{0}), append(directory, std::uint16_t{0});
    append(directory, std::uint32_t{0}), append(directory, offset), append_text(directory, name);
  }
  const auto start = static_cast<std::uint32_t>(bytes.size()), size = static_cast<std::uint32_t>(directory.size());
  bytes.insert(bytes.end(), directory.begin(), directory.end());
  const auto count = static_cast<std::uint16_t>(files.size());
  append(bytes, std::uint32_t{0x06054b50}), append(bytes, std::uint32_t{0}), append(bytes, count), append(bytes, count);
  append(bytes, size), append(bytes, start), append(bytes, std::uint16_t{0});
  return bytes;
}

// An uncompressed PNG. `rows` are stored as they are (big-endian values). kind: 0 grey, 2 colours, 3 palette, 4 grey and alpha, 6
// colours and alpha. `chunks`: names and bytes of other chunks, placed before the pixels.
inline Bytes png_file(std::uint32_t width, std::uint32_t height, int bits, int kind, const std::vector<std::uint8_t>& rows,
                      const std::vector<std::pair<std::string, std::vector<std::uint8_t>>>& chunks = {}) {
  Bytes file;
  const auto chunk = [&](const std::string& name, const Bytes& content) {
    append(file, static_cast<std::uint32_t>(content.size()), true);
    Bytes named;
    append_text(named, name);
    named.insert(named.end(), content.begin(), content.end());
    file.insert(file.end(), named.begin(), named.end());
    append(file, checksum_of(named), true);
  };
  append_text(file, "\x89PNG\r\n\x1a\n");
  Bytes header;
  append(header, width, true), append(header, height, true);
  for (const int value : {bits, kind, 0, 0, 0}) append(header, static_cast<std::uint8_t>(value));
  chunk("IHDR", header);
  for (const auto& [name, content] : chunks) {
    Bytes bytes;
    for (const auto each : content) append(bytes, each);
    chunk(name, bytes);
  }
  // A zlib stream of one stored block: a byte 0 (no filter) before each row.
  Bytes plain, packed{std::byte{0x78}, std::byte{0x01}, std::byte{1}};
  const auto row = rows.size() / height;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % row == 0) plain.push_back(std::byte{0});
    plain.push_back(static_cast<std::byte>(rows[i]));
  }
  append(packed, static_cast<std::uint16_t>(plain.size())), append(packed, static_cast<std::uint16_t>(~plain.size()));
  packed.insert(packed.end(), plain.begin(), plain.end());
  std::uint32_t a = 1, b = 0;  // Adler-32
  for (const auto byte : plain) a = (a + static_cast<std::uint32_t>(byte)) % 65521, b = (b + a) % 65521;
  append(packed, b << 16 | a, true);
  chunk("IDAT", packed), chunk("IEND", {});
  return file;
}

struct NiftiOptions {
  bool big = false;
  float slope = 0, shift = 0;
};
// extents: x, y, z, ...; x varies fastest. Elements of type 2 have 8 bits, all others 16.
inline Bytes nifti_file(const std::vector<int>& extents, int type, const std::vector<int>& elements,
                        const NiftiOptions& options = {}) {
  Bytes header(352);
  const auto put = [&](std::size_t at, auto value) {
    Bytes bytes;
    append(bytes, value, options.big);
    std::copy(bytes.begin(), bytes.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto bits = [](float value) {
    std::uint32_t result = 0;
    std::memcpy(&result, &value, 4);
    return result;
  };
  put(0, std::int32_t{348}), put(40, static_cast<std::int16_t>(extents.size()));
  for (std::size_t i = 0; i < extents.size(); ++i) put(42 + 2 * i, static_cast<std::int16_t>(extents[i]));
  put(70, static_cast<std::int16_t>(type)), put(72, static_cast<std::int16_t>(type == 2 ? 8 : 16));
  put(108, bits(352)), put(112, bits(options.slope)), put(116, bits(options.shift));
  header[344] = std::byte{'n'}, header[345] = std::byte{'+'}, header[346] = std::byte{'1'};
  for (const int element : elements) {
    if (type == 2) append(header, static_cast<std::uint8_t>(element));
    else append(header, static_cast<std::int16_t>(element), options.big);
  }
  return header;
}

}  // namespace mpigrad::testing
