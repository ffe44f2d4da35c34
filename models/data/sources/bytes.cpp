#include "models/data/sources/bytes.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

#include "framework/base/host_memory.h"
#include "framework/base/joined.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

class FileStream final : public ByteStream {
 public:
  explicit FileStream(const fs::path& path) : path_(path) {
    const auto name = path.string();
    std::error_code error;
    require(fs::exists(path, error), "[data] {}: no such file", name);
    // Opening a pipe would wait for a writer.
    require(fs::is_regular_file(path, error), "[data] {}: not a regular file", name);
    size_ = fs::file_size(path, error);
    require(!error, "[data] {}: {}", name, error.message());
    open();
  }
  std::size_t read(std::byte* to, std::size_t count) override {
    if (!stream_) open();
    const auto wanted = std::min<std::uint64_t>(count, size_ - used_);
    stream_->read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(wanted));
    used_ += static_cast<std::uint64_t>(stream_->gcount());
    require(stream_->gcount() == static_cast<std::streamsize>(wanted), "[data] {}: only {} of {} bytes can be read",
            path_.string(), used_, size_);
    return static_cast<std::size_t>(wanted);
  }
  double most_left() const override { return static_cast<double>(size_ - used_); }
  std::uint64_t pass(std::uint64_t count) override {
    constexpr std::uint64_t in_buffer = 4096;  // shorter steps are cheaper within the stream's buffer than a new read
    const auto passed = std::min(count, size_ - used_);
    used_ += passed;
    if (stream_ && passed < in_buffer) stream_->ignore(static_cast<std::streamsize>(passed));
    else if (stream_) stream_->seekg(static_cast<std::streamoff>(used_));
    return passed;
  }
  bool passes_freely() const override { return true; }
  ByteStreamPtr copy() const override { return ByteStreamPtr(new FileStream(*this)); }
  void begin_again() { stream_->seekg(0), used_ = 0; }

 private:
  FileStream(const FileStream& other) : path_(other.path_), size_(other.size_), used_(other.used_) {}
  void open() {
    stream_.emplace(path_, std::ios::binary);
    require(stream_->good(), "[data] {}: cannot be opened", path_.string());
    if (used_ > 0) stream_->seekg(static_cast<std::streamoff>(used_));
  }

  fs::path path_;
  std::optional<std::ifstream> stream_;
  std::uint64_t size_ = 0, used_ = 0;
};

struct Opened {
  ByteStreamPtr stream;
  bool packed = false;
};

Opened open_file(const fs::path& path) {
  auto file = std::make_unique<FileStream>(path);
  std::array<std::byte, 2> first{};
  const bool packed = file->read(first.data(), 2) == 2 && first == std::array{std::byte{0x1f}, std::byte{0x8b}};
  file->begin_again();
  if (packed) return {gunzip(std::move(file), path.string()), true};
  return {std::move(file), false};
}

}  // namespace

ByteStreamPtr open_stream(const fs::path& path) { return open_file(path).stream; }

std::vector<fs::path> files_at(const fs::path& path, const std::function<bool(const std::string&)>& wanted,
                               const std::string& none) {
  std::error_code error;
  require(fs::exists(path, error), "[data] {}: no such file or folder", path.string());
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  fs::directory_iterator entries(path, error);
  require(!error, "[data] {}: the folder cannot be read: {}", path.string(), error.message());
  for (const auto& entry : entries) {
    const auto name = entry.path().filename().string();
    if (name.front() != '.' && wanted(name)) files.push_back(entry.path());
  }
  require(!files.empty(), "[data] {}: {}", path.string(), none);
  std::sort(files.begin(), files.end());
  return files;
}

Bytes take(ByteStream& stream, std::size_t count) {
  // Touches only memory for bytes that arrive: the estimate of the remaining bytes may be far too large.
  constexpr std::size_t at_once = 1 << 20;
  Bytes bytes;
  bytes.reserve(static_cast<std::size_t>(std::clamp(stream.most_left(), 0.0, static_cast<double>(count))));
  std::size_t used = 0;
  while (used < count) {
    const auto step = std::min(count - used, std::max(at_once, used));
    bytes.resize(used + step);
    const auto got = stream.read(bytes.data() + used, step);
    used += got;
    if (got < step) break;
  }
  bytes.resize(used);
  return bytes;
}

bool at_end(ByteStream& stream) {
  std::byte next{};
  return stream.read(&next, 1) == 0;
}

Bytes take_elements(ByteStream& stream, double total, double more, const std::string& where, const std::string& shape) {
  const auto left = stream.most_left();
  require(total <= left, "{}: truncated: {:.0f} bytes of elements, {:.0f} make {}", where, left, total, shape);
  require_host_memory(where, total + more);
  auto bytes = take(stream, static_cast<std::size_t>(total));
  require(static_cast<double>(bytes.size()) == total, "{}: truncated: {} bytes of elements, {:.0f} make {}", where, bytes.size(),
          total, shape);
  require(at_end(stream), "{}: longer than it says: there are more than the {:.0f} bytes of elements that make {}", where, total,
          shape);
  return bytes;
}

Bytes read_bytes(const fs::path& path) {
  constexpr std::size_t most_unpacked = std::size_t{1} << 30, some = std::size_t{1} << 26;
  const auto [stream, packed] = open_file(path);
  const auto where = fmt::format("[data] {}", path.string());
  if (!packed) {
    require_host_memory(where, stream->most_left());
    return take(*stream, static_cast<std::size_t>(stream->most_left()));
  }
  auto bytes = take(*stream, some);
  if (bytes.size() < some) return bytes;
  require_host_memory(where, most_unpacked);
  const auto more = take(*stream, most_unpacked - some);
  require(at_end(*stream), "{}: more than {} bytes when it is unpacked", where, most_unpacked);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

StoredType stored_type(char kind, int size, bool big, const std::string& name) {
  StoredType result{DType::uint8, kind, size, big};
  if (kind == 'f' && (size == 4 || size == 8)) result.type = size == 4 ? DType::float32 : DType::float64;
  else if (kind == 'f' && size == 2) result.type = DType::float32;
  else if (kind == 'b' && size == 1) result.type = DType::boolean;
  else if (kind == 'i' && (size == 1 || size == 2)) result.type = DType::int16;
  else if (kind == 'i' && (size == 4 || size == 8)) result.type = size == 4 ? DType::int32 : DType::int64;
  else if (kind == 'u' && size == 2) result.type = DType::uint16;
  else if (kind == 'u' && (size == 4 || size == 8)) result.type = DType::int64;
  else require(kind == 'u' && size == 1, "[data] {}: elements of kind {} and {} bytes are not supported", name, kind, size);
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

// Like visit_stored(), including types that the engine does not have.
template <class F>
void visit_file_type(const StoredType& s, F f) {
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

void require_positive(const Bytes& values, const std::string& name) {
  const auto* from = reinterpret_cast<const std::int64_t*>(values.data());
  for (std::size_t i = 0; i < values.size() / sizeof(std::int64_t); ++i)
    require(from[i] >= 0, "[data] {}: a number above 2^63 - 1", name);
}

}  // namespace

Bytes converted(const std::byte* from, std::int64_t count, const StoredType& stored, const std::string& name) {
  Bytes values(static_cast<std::size_t>(count * size_of(stored.type)));
  const bool swap = stored.big_endian != (std::endian::native == std::endian::big);
  visit_file_type(stored, [&](auto zero) {
    using From = decltype(zero);
    visit_stored(stored.type, [&](auto nought) {
      using To = decltype(nought);
      if constexpr (!std::is_same_v<From, Float16> || std::is_floating_point_v<To>) convert<From, To>(from, count, swap, values);
    });
  });
  if (stored.kind == 'u' && stored.size == 8) require_positive(values, name);
  return values;
}

namespace {

// True if the stored bytes are the elements.
bool as_stored(const StoredType& stored) {
  const bool native = stored.size == 1 || stored.big_endian == (std::endian::native == std::endian::big);
  return native && size_of(stored.type) == stored.size && stored.kind != 'b';  // any non-zero byte may mean true
}

}  // namespace

double elements_of(const Shape& shape, const std::string& where) {
  double elements = 1, without_zeros = 1;
  for (const auto extent : shape) {
    elements *= static_cast<double>(extent);
    without_zeros *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  }
  require(without_zeros < 0x1p53, "{}: a file cannot have the extents {}", where, shape);
  return elements;
}

void require_target_count(std::int64_t count, const std::string& where) {
  constexpr std::int64_t most_targets = 65536;
  require(count <= most_targets, "{}: {} targets for each sample, more than {}", where, count, most_targets);
}

double bytes_of_conversion(double elements, const StoredType& stored) {
  return as_stored(stored) ? 0 : elements * static_cast<double>(size_of(stored.type));
}

Bytes converted(Bytes bytes, const StoredType& stored, const std::string& name) {
  const auto count = static_cast<std::int64_t>(bytes.size()) / stored.size;
  if (!as_stored(stored)) return converted(bytes.data(), count, stored, name);
  if (stored.kind == 'u' && stored.size == 8) require_positive(bytes, name);
  return bytes;
}

std::vector<std::int64_t> integers(const Bytes& values, DType type, const std::string& name) {
  require(!is_floating(type), "[data] {}: labels must be integers, not {}", name, name_of(type));
  std::vector<std::int64_t> result;
  visit_any_integral(type, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = reinterpret_cast<const T*>(values.data());
    result.assign(from, from + values.size() / sizeof(T));
  });
  return result;
}

void copy_box(const std::byte* from, std::int64_t cell, const Shape& extents, const Box& box, std::byte* out) {
  for (int a = 0; a < 3; ++a)
    require(box.begin[a] >= 0 && box.begin[a] <= box.end[a] && box.end[a] <= extents[a], "[data] the box {} is not inside {}",
            to_string(box), extents);
  copy_cells(from, {Shape{0, 0, 0}, extents}, box, box, cell, out);
}

void copy_cells(const std::byte* from, const Box& from_box, const Box& part, const Box& to_box, std::int64_t cell,
                std::byte* to) {
  const auto size = part.extents(), source = from_box.extents(), target = to_box.extents();
  const auto place = [&](const Box& whole, const Shape& extents, std::int64_t d, std::int64_t h) {
    return (((d - whole.begin[0]) * extents[1] + h - whole.begin[1]) * extents[2] + part.begin[2] - whole.begin[2]) * cell;
  };
  // Rows that are consecutive in both arrays are copied at once.
  const bool full_rows = size[2] == source[2] && size[2] == target[2];
  const bool full_planes = full_rows && size[1] == source[1] && size[1] == target[1];
  const auto rows = full_rows ? size[1] : 1, planes = full_planes ? size[0] : 1;
  const auto bytes = size[2] * rows * planes * cell;
  if (bytes == 0) return;
  for (auto d = part.begin[0]; d < part.end[0]; d += planes)
    for (auto h = part.begin[1]; h < part.end[1]; h += rows)
      std::copy_n(from + place(from_box, source, d, h), bytes, to + place(to_box, target, d, h));
}

void convert(const void* from, DType stored, std::int64_t count, DType type, void* to) {
  visit_stored(stored, [&](auto zero) {
    using From = decltype(zero);
    visit_stored(type, [&](auto nought) {
      using To = decltype(nought);
      std::transform(static_cast<const From*>(from), static_cast<const From*>(from) + count, static_cast<To*>(to),
                     [](From value) { return static_cast<To>(value); });
    });
  });
}

}  // namespace mpigrad::data
