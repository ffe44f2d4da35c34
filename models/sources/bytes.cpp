#include "models/sources/bytes.h"

#include <algorithm>
#include <fstream>

namespace mpigrad::data {

namespace fs = std::filesystem;

Bytes read_bytes(const fs::path& path) {
  std::error_code error;
  const auto name = path.string();
  require(fs::exists(path, error), "[data] {}: no such file", name);
  // Opening a pipe would wait for somebody to write.
  require(fs::is_regular_file(path, error), "[data] {}: not a regular file", name);
  const auto size = fs::file_size(path, error);
  require(!error, "[data] {}: {}", name, error.message());
  Bytes bytes(size);
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[data] {}: cannot be opened", name);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  require(stream.gcount() == static_cast<std::streamsize>(size), "[data] {}: only {} of {} bytes can be read", name,
          stream.gcount(), size);
  const bool packed = size >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
  return packed ? gunzip(bytes, name) : bytes;
}

StoredType stored_type(char kind, int size, bool big, const std::string& name) {
  StoredType result{DType::uint8, kind, size, big};
  if (kind == 'f' && (size == 4 || size == 8)) result.type = size == 4 ? DType::float32 : DType::float64;
  else if (kind == 'f' && size == 2) result.type = DType::float32;
  else if (kind == 'b' && size == 1) result.type = DType::boolean;
  else if (kind == 'i' && (size == 1 || size == 2)) result.type = DType::int16;
  else if (kind == 'i' && (size == 4 || size == 8)) result.type = size == 4 ? DType::int32 : DType::int64;
  else if (kind == 'u' && size == 2) result.type = DType::int32;
  else if (kind == 'u' && (size == 4 || size == 8)) result.type = DType::int64;
  else require(kind == 'u' && size == 1, "[data] {}: elements of kind {} and {} bytes are not read", name, kind, size);
  return result;
}

namespace {

template <class T>
T load(const std::byte* from, bool swap) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swap) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

template <class From, class To>
void convert(const std::byte* from, std::int64_t count, bool swap, Bytes& to) {
  auto* out = reinterpret_cast<To*>(to.data());
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(load<From>(from + i * std::int64_t{sizeof(From)}, swap));
}

template <class F>
void visit_stored(const StoredType& s, F f) {
  if (s.kind == 'f') {
    if (s.size == 2) f(Float16{});
    else if (s.size == 4) f(float{});
    else f(double{});
  } else if (s.kind == 'i') {
    if (s.size == 1) f(std::int8_t{});
    else if (s.size == 2) f(std::int16_t{});
    else if (s.size == 4) f(std::int32_t{});
    else f(std::int64_t{});
  } else {
    if (s.size == 1) f(std::uint8_t{});
    else if (s.size == 2) f(std::uint16_t{});
    else if (s.size == 4) f(std::uint32_t{});
    else f(std::uint64_t{});
  }
}

}  // namespace

Bytes converted(const std::byte* from, std::int64_t count, const StoredType& stored, const std::string& name) {
  Bytes values(static_cast<std::size_t>(count * size_of(stored.type)));
  const bool swap = stored.big_endian != (std::endian::native == std::endian::big);
  visit_stored(stored, [&](auto zero) {
    using From = decltype(zero);
    visit_arithmetic(stored.type, [&](auto nought) {
      using To = decltype(nought);
      if constexpr (!std::is_same_v<From, Float16> || std::is_floating_point_v<To>) convert<From, To>(from, count, swap, values);
    });
  });
  if (stored.kind == 'u' && stored.size == 8)
    for (std::int64_t i = 0; i < count; ++i)
      require(reinterpret_cast<const std::int64_t*>(values.data())[i] >= 0, "[data] {}: a number above 2^63 - 1", name);
  return values;
}

std::vector<std::int64_t> integers(const Bytes& values, DType type, const std::string& name) {
  require(!is_floating(type), "[data] {}: labels are integers, not {}", name, name_of(type));
  std::vector<std::int64_t> result;
  visit_integral(type, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = reinterpret_cast<const T*>(values.data());
    result.assign(from, from + values.size() / sizeof(T));
  });
  return result;
}

void copy_box(const void* from, DType stored, const Shape& extents, std::int64_t channels, std::span<const std::int64_t> begin,
              std::span<const std::int64_t> end, DType type, void* out) {
  require(begin.size() == 3 && end.size() == 3, "[data] a box of [D, H, W] has 3 dimensions, this one {}", begin.size());
  for (std::size_t a = 0; a < 3; ++a)
    require(begin[a] >= 0 && begin[a] <= end[a] && end[a] <= extents[static_cast<int>(a)],
            "[data] the box [{}] to [{}] is not inside {}", fmt::join(begin, ", "), fmt::join(end, ", "), extents);
  require(is_floating(type) || !is_floating(stored), "[data] {} would round values that are {}", name_of(type), name_of(stored));
  const auto row = (end[2] - begin[2]) * channels;
  visit_arithmetic(stored, [&](auto zero) {
    using From = decltype(zero);
    visit_arithmetic(type, [&](auto nought) {
      using To = decltype(nought);
      auto* to = static_cast<To*>(out);
      for (auto d = begin[0]; d < end[0]; ++d)
        for (auto h = begin[1]; h < end[1]; ++h, to += row) {
          const auto* in = static_cast<const From*>(from) + ((d * extents[1] + h) * extents[2] + begin[2]) * channels;
          if constexpr (std::is_same_v<From, To>) std::copy_n(in, row, to);
          else
            for (std::int64_t i = 0; i < row; ++i) to[i] = static_cast<To>(in[i]);
        }
    });
  });
}

}  // namespace mpigrad::data
