#pragma once
// What zlib and libzip unpack. In builds without one of them its functions are errors that say what to install.

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

// Bytes one after the other: of a file, or of what is unpacked on the way, of which no more is unpacked than is read.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `count` further bytes to `to`; fewer only at the end. Error: what is wrong with a file that is truncated or corrupt.
  virtual std::size_t read(std::byte* to, std::size_t count) = 0;
  // No more bytes can come than this; of a packed file an estimate.
  virtual double most_left() const = 0;
  // Leaves out `count` further bytes, fewer only at the end, and returns how many. Errors as those of read().
  virtual std::uint64_t pass(std::uint64_t count) {
    Bytes passed(static_cast<std::size_t>(std::min<std::uint64_t>(count, std::uint64_t{1} << 17)));
    std::uint64_t done = 0;
    for (std::size_t got = 1; done < count && got > 0; done += got)
      got = read(passed.data(), static_cast<std::size_t>(std::min<std::uint64_t>(count - done, passed.size())));
    return done;
  }
  // Whether pass() costs nothing.
  virtual bool passes_freely() const { return false; }
  // Another stream that goes on from here. It opens its file when it is first read. Null: this kind of stream has no copies.
  virtual std::unique_ptr<ByteStream> copy() const { return nullptr; }
};
using ByteStreamPtr = std::unique_ptr<ByteStream>;

bool gzip_available();
// The bytes that the gzip members in `packed` hold, one after the other; zeros after a member are padding. A copy takes about
// 50 KB. `name` is for messages. Errors: truncated, corrupt.
ByteStreamPtr gunzip(ByteStreamPtr packed, const std::string& name);
// One gzip member.
Bytes gzip(std::span<const std::byte> plain);

bool zip_available();
// The names of the files in a zip archive, in its order. Errors: no archive; a name that is not UTF-8 or has
// control characters; of these libzip shows a NUL as a space.
std::vector<std::string> zip_names(const std::filesystem::path& path);
// One of them; its checksum is verified where it ends. Errors: no such file in it, truncated, corrupt.
ByteStreamPtr unzip(const std::filesystem::path& path, const std::string& name);

// A new archive of these files, stored as they are; under a temporary name until it is whole. Error: cannot be written.
struct ZipEntry {
  std::string name;
  Bytes bytes;
};
void write_zip(const std::filesystem::path& path, const std::vector<ZipEntry>& entries);

}  // namespace mpigrad::data
