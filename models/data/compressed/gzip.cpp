#include <zlib.h>

#include <algorithm>
#include <limits>

#include "framework/base/error.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {
namespace {

constexpr int gzip_window = MAX_WBITS + 16;  // 16: gzip's header instead of zlib's
constexpr std::size_t most = std::numeric_limits<uInt>::max() / 2;

struct Inflation {
  z_stream stream{};
  Inflation() { require(inflateInit2(&stream, gzip_window) == Z_OK, "[gzip] zlib cannot be initialised"); }
  Inflation(const Inflation& other) {
    require(inflateCopy(&stream, const_cast<z_stream*>(&other.stream)) == Z_OK, "[gzip] zlib's state cannot be copied");
  }
  Inflation& operator=(const Inflation&) = delete;
  ~Inflation() { inflateEnd(&stream); }
};

Bytef* pointer(const std::byte* bytes) { return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes)); }

class GunzipStream final : public ByteStream {
 public:
  GunzipStream(ByteStreamPtr packed, std::string name) : packed_(std::move(packed)), name_(std::move(name)) {}

  std::size_t read(std::byte* to, std::size_t count) override {
    auto& z = inflation_.stream;
    std::size_t got = 0;
    while (got < count) {
      bool dry = false;
      if (z.avail_in == 0) {
        input_.resize(input_bytes);
        z.avail_in = static_cast<uInt>(packed_->read(input_.data(), input_.size()));
        dry = z.avail_in == 0;
        z.next_in = pointer(input_.data());
        if (dry && ended_) return got;
      }
      if (ended_) {
        while (z.avail_in > 0 && *z.next_in == 0) ++z.next_in, --z.avail_in;
        if (z.avail_in == 0) continue;
        require(inflateReset(&z) == Z_OK, "[gzip] {}: zlib cannot be reset", name_);
      }
      const auto out = static_cast<uInt>(std::min(most, count - got));
      z.next_out = pointer(to + got), z.avail_out = out;
      const int status = inflate(&z, Z_NO_FLUSH);
      // zlib may still hold output that needs no more input.
      require(!dry || z.avail_out < out || status == Z_STREAM_END, "[gzip] {}: the file is truncated", name_);
      got += out - z.avail_out;
      ended_ = status == Z_STREAM_END;
      if (!ended_ && status != Z_OK && status != Z_BUF_ERROR)  // Z_BUF_ERROR: more input is needed
        fail("[gzip] {}: the file is corrupt: {}", name_, z.msg != nullptr ? z.msg : zError(status));
    }
    return got;
  }
  // Deflate makes at most 258 bytes from 2 bits; the packed bytes already read are fewer than the buffer holds.
  double most_left() const override { return (packed_->most_left() + input_bytes) * 1032 + input_bytes; }
  ByteStreamPtr copy() const override {
    auto packed = packed_->copy();
    if (packed == nullptr) return nullptr;
    return ByteStreamPtr(new GunzipStream(*this, std::move(packed)));
  }

 private:
  static constexpr std::size_t input_bytes = 1 << 14;
  // Copies the remaining input, too.
  GunzipStream(const GunzipStream& other, ByteStreamPtr packed)
      : packed_(std::move(packed)), name_(other.name_), inflation_(other.inflation_), ended_(other.ended_) {
    const auto& left = other.inflation_.stream;
    const auto* from = reinterpret_cast<const std::byte*>(left.next_in);
    if (left.avail_in > 0) input_.assign(from, from + left.avail_in);
    inflation_.stream.next_in = pointer(input_.data());
  }

  ByteStreamPtr packed_;
  std::string name_;
  Bytes input_;
  Inflation inflation_;
  bool ended_ = false;  // the end of a member; another one may follow
};

}  // namespace

bool gzip_available() { return true; }

ByteStreamPtr gunzip(ByteStreamPtr packed, const std::string& name) {
  return std::make_unique<GunzipStream>(std::move(packed), name);
}

Bytes gzip(std::span<const std::byte> plain) {
  require(plain.size() <= most, "[gzip] {} bytes are too many for one gzip() call", plain.size());
  z_stream z{};
  require(deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "[gzip] zlib cannot be initialised");
  Bytes compressed(deflateBound(&z, static_cast<uLong>(plain.size())));
  z.next_in = pointer(plain.data()), z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = pointer(compressed.data()), z.avail_out = static_cast<uInt>(compressed.size());
  const int status = deflate(&z, Z_FINISH);
  compressed.resize(z.total_out);
  deflateEnd(&z);
  require(status == Z_STREAM_END, "[gzip] zlib cannot finish: {}", zError(status));
  return compressed;
}

}  // namespace mpigrad::data
