#include <zlib.h>

#include <algorithm>
#include <limits>

#include "framework/error.h"
#include "models/compressed/compressed.h"

namespace mpigrad::data {
namespace {

constexpr int gzip_window = MAX_WBITS + 16;  // 16: gzip's header instead of zlib's
constexpr std::size_t most = std::numeric_limits<uInt>::max() / 2;

struct Inflation {
  z_stream stream{};
  Inflation() { require(inflateInit2(&stream, gzip_window) == Z_OK, "[gzip] zlib does not start"); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;
  ~Inflation() { inflateEnd(&stream); }
};

Bytef* pointer(const std::byte* bytes) { return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes)); }

}  // namespace

bool gzip_available() { return true; }

Bytes gunzip(std::span<const std::byte> compressed, const std::string& name) {
  Inflation inflation;
  auto& z = inflation.stream;
  Bytes plain(std::max<std::size_t>(4 * compressed.size(), 1 << 16));
  std::size_t used = 0, taken = 0;
  bool ended = false;
  while (!ended || taken < compressed.size()) {
    if (ended) require(inflateReset(&z) == Z_OK, "[gzip] {}: zlib does not start again", name);
    if (used == plain.size()) plain.resize(2 * plain.size());
    const auto in = std::min(most, compressed.size() - taken), out = std::min(most, plain.size() - used);
    z.next_in = pointer(compressed.data() + taken), z.avail_in = static_cast<uInt>(in);
    z.next_out = pointer(plain.data() + used), z.avail_out = static_cast<uInt>(out);
    const int status = inflate(&z, Z_NO_FLUSH);
    taken += in - z.avail_in, used += out - z.avail_out;
    ended = status == Z_STREAM_END;
    if (ended || status == Z_OK) {
      const bool stuck = !ended && taken == compressed.size() && z.avail_out > 0;
      require(!stuck, "[gzip] {}: the file is truncated", name);
      continue;
    }
    require(status != Z_BUF_ERROR, "[gzip] {}: the file is truncated", name);
    fail("[gzip] {}: the file is corrupt: {}", name, z.msg != nullptr ? z.msg : zError(status));
  }
  plain.resize(used);
  return plain;
}

Bytes gzip(std::span<const std::byte> plain) {
  require(plain.size() <= most, "[gzip] {} bytes are too many for one call", plain.size());
  z_stream z{};
  require(deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "[gzip] zlib does not start");
  Bytes compressed(deflateBound(&z, static_cast<uLong>(plain.size())));
  z.next_in = pointer(plain.data()), z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = pointer(compressed.data()), z.avail_out = static_cast<uInt>(compressed.size());
  const int status = deflate(&z, Z_FINISH);
  compressed.resize(z.total_out);
  deflateEnd(&z);
  require(status == Z_STREAM_END, "[gzip] zlib does not finish: {}", zError(status));
  return compressed;
}

}  // namespace mpigrad::data
