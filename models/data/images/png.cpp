#include <png.h>

#include <array>
#include <bit>
#include <csetjmp>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"
#include "models/data/images/decode.h"

namespace mpigrad::data {

namespace {

// libpng leaves a failing call by longjmp, over stack frames that must not need destructors.
class Decoder {
 public:
  Decoder(std::span<const std::byte> bytes, const std::string& name) : left_(bytes), name_(name) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &Decoder::leave, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    require(info_ != nullptr, "[png] {}: libpng does not start", name_);
    png_set_read_fn(png_, this, &Decoder::give);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // f(png, info), with libpng's errors as our Errors.
  template <class F>
  void run(F f) {
    if (!returns(f)) fail("[png] {}: {}", name_, message_.data());
  }

 private:
  template <class F>
  bool returns(F& f) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    f(png_, info_);
    return true;
  }
  [[noreturn]] static void leave(png_structp png, png_const_charp message) {
    auto& text = static_cast<Decoder*>(png_get_error_ptr(png))->message_;
    std::strncpy(text.data(), message, text.size() - 1);
    png_longjmp(png, 1);
  }
  static void give(png_structp png, png_bytep to, std::size_t count) {
    auto& left = static_cast<Decoder*>(png_get_io_ptr(png))->left_;
    if (count > left.size()) png_error(png, "the file is truncated");
    std::memcpy(to, left.data(), count);
    left = left.subspan(count);
  }

  std::span<const std::byte> left_;
  const std::string& name_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::array<char, 128> message_{};
};

// Converts `from` channels of every pixel (grey or colours, possibly followed by alpha) to `to` channels, 1 or 3.
template <class T>
void convert_pixels(const T* in, std::int64_t from, std::int64_t to, Pixels& pixels, const std::string& name) {
  const auto count = pixels.height * pixels.width;
  const bool colour = from >= 3, alpha = from % 2 == 0;
  auto* out = reinterpret_cast<T*>(pixels.values.data());
  for (std::int64_t i = 0; i < count; ++i, in += from, out += to) {
    if (alpha && in[from - 1] != static_cast<T>(-1))
      fail(
          "[png] {}: the pixel in row {} and column {} is transparent, and its background is unknown: save the picture "
          "without alpha",
          name, i / pixels.width, i % pixels.width);
    for (std::int64_t c = 0; c < to; ++c) out[c] = in[colour ? c : 0];
    if (colour && to == 1)
      out[0] =
          static_cast<T>((299 * std::uint32_t{in[0]} + 587 * std::uint32_t{in[1]} + 114 * std::uint32_t{in[2]} + 500) / 1000);
  }
}

}  // namespace

bool png_available() { return true; }

Pixels decode_png(std::span<const std::byte> bytes, int channels, const std::string& name) {
  Decoder decoder(bytes, name);
  std::uint64_t width = 0, height = 0;
  decoder.run([&](png_structp png, png_infop info) {
    png_read_info(png, info);
    width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  });
  require(width * height <= (1U << 28), "[png] {}: {} x {} pixels are too many", name, height, width);
  std::size_t row_bytes = 0;
  int bits = 0, stored = 0;
  decoder.run([&](png_structp png, png_infop info) {
    png_set_expand(png);  // palettes to their colours, 1, 2 and 4 bits to 8, a transparent colour to alpha
    if (std::endian::native == std::endian::little) png_set_swap(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    row_bytes = png_get_rowbytes(png, info);
    bits = png_get_bit_depth(png, info), stored = png_get_channels(png, info);
  });
  Pixels pixels{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width), stored >= 3 ? 3 : 1, bits, {}};
  if (channels != 0) pixels.channels = channels;
  const auto wanted = width * height * static_cast<std::uint64_t>(pixels.channels * bits / 8);
  require_host_memory(fmt::format("[png] {}: {} x {} pixels", name, height, width),
                      static_cast<double>(row_bytes * height + wanted));
  std::vector<std::uint8_t> raw(row_bytes * static_cast<std::size_t>(height));
  std::vector<png_bytep> rows;
  for (std::size_t row = 0; row < height; ++row) rows.push_back(raw.data() + row * row_bytes);
  decoder.run([&](png_structp png, png_infop) {
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  });
  if (stored == pixels.channels) {
    pixels.values = std::move(raw);
    return pixels;
  }
  pixels.values.resize(static_cast<std::size_t>(wanted));
  if (bits == 16) convert_pixels(reinterpret_cast<const std::uint16_t*>(raw.data()), stored, pixels.channels, pixels, name);
  else convert_pixels(raw.data(), stored, pixels.channels, pixels, name);
  return pixels;
}

}  // namespace mpigrad::data
