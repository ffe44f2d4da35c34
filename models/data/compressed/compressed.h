#pragma once
// Unpacking by zlib and libzip. In builds without one of these libraries its functions throw an Error that says what to install.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mpigrad::data {

using Bytes = std::vector<std::byte>;

// A stream of bytes: of a file, or unpacked on the way; only as much is unpacked as is read.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Writes up to `count` further bytes to `to`; fewer only at the end. Error: a truncated or corrupt file, with the reason.
  virtual std::size_t read(std::byte* to, std::size_t count) = 0;
  // Upper bound for the remaining bytes; for a packed file an estimate.
  virtual double most_left() const = 0;
  // Skips `count` further bytes, fewer only at the end, and returns how many. Errors: as read().
  virtual std::uint64_t pass(std::uint64_t count) {
    Bytes passed(static_cast<std::size_t>(std::min<std::uint64_t>(count, std::uint64_t{1} << 17)));
    std::uint64_t done = 0;
    for (std::size_t got = 1; done < count && got > 0; done += got)
      got = read(passed.data(), static_cast<std::size_t>(std::min<std::uint64_t>(count - done, passed.size())));
    return done;
  }
  // True if pass() costs nothing.
  virtual bool passes_freely() const { return false; }
  // Another stream that continues from here. It opens its file when it is first read. Null: this kind of stream cannot be copied.
  virtual std::unique_ptr<ByteStream> copy() const { return nullptr; }
};
using ByteStreamPtr = std::unique_ptr<ByteStream>;

// True if this build has zlib.
bool gzip_available();
// The bytes in the gzip members of `packed`, one after the other; zeros after a member are padding. A copy takes about 50 KB.
// `name` is for messages. Errors: truncated, corrupt.
ByteStreamPtr gunzip(ByteStreamPtr packed, const std::string& name);
// `plain` as one gzip member.
Bytes gzip(std::span<const std::byte> plain);

// True if this build has libzip.
bool zip_available();
// The names of the files in a zip archive, in its order. Errors: not an archive; a name that is not UTF-8 or has control
// characters (libzip shows a NUL as a space).
std::vector<std::string> zip_names(const std::filesystem::path& path);
// One of these files; its checksum is verified where it ends. Errors: no such file in the archive, truncated, corrupt.
ByteStreamPtr unzip(const std::filesystem::path& path, const std::string& name);

// Writes a new archive of these files, uncompressed; under a temporary name until it is complete. Error: cannot be written.
struct ZipEntry {
  std::string name;
  Bytes bytes;
};
void write_zip(const std::filesystem::path& path, const std::vector<ZipEntry>& entries);

}  // namespace mpigrad::data
