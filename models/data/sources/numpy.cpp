#include <cctype>
#include <charconv>
#include <string_view>

#include "framework/base/printable.h"
#include "models/data/sources/formats.h"

namespace mpigrad::data {
namespace {

// A reader of the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Header {
 public:
  Header(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void parse() {
    expect('{');
    while (!taken('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr") descriptor = quoted();
      else if (key == "fortran_order") fortran = boolean();
      else if (key == "shape") shape = tuple(), shaped = true;
      else broken();
      if (!taken(',')) {
        expect('}');
        break;
      }
    }
    require(shaped && !descriptor.empty(), "[npy] {}: the header lacks a shape or an element type", name_);
  }

  std::string descriptor;
  Shape shape;
  bool fortran = false, shaped = false;

 private:
  [[noreturn]] void broken() const { fail("[npy] {}: the header is not one of numpy's: {}", name_, printable(text_, 200)); }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool taken(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!taken(c)) broken();
  }
  std::string quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    require(quote == '\'' || quote == '"', "[npy] {}: elements are records, or not a numpy header: {}", name_,
            printable(text_, 200));
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) broken();
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  bool boolean() {
    skip();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    broken();
  }
  Shape tuple() {
    Shape result;
    expect('(');
    while (!taken(')')) {
      skip();
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) broken();
      at_ = static_cast<std::size_t>(end - text_.data());
      result.push_back(extent);
      if (!taken(',')) {
        expect(')');
        break;
      }
    }
    return result;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(ByteStream& stream, const std::string& name, bool takes_complex) {
  constexpr std::string_view magic = "\x93NUMPY";
  const auto text_of = [](const Bytes& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto start = take(stream, 8);
  const auto version = start.size() == 8 ? static_cast<int>(start[6]) : 0;
  // The header's length takes two bytes in version 1 and four in later versions.
  const std::size_t width = version == 1 ? 2 : 4;
  const auto digits = take(stream, width);
  require(digits.size() == width && text_of(start).starts_with(magic), "[npy] {}: not a .npy file", name);
  require(version >= 1 && version <= 3, "[npy] {}: unknown version {} of the format", name, version);
  std::size_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length * 256 + static_cast<std::size_t>(digits[i]);
  require(static_cast<double>(length) <= stream.most_left(), "[npy] {}: the file ends in its header", name);
  constexpr std::size_t longest = 1 << 20;
  require(length <= longest, "[npy] {}: a header of {} bytes is not one of numpy's", name, length);
  const auto text = take(stream, length);
  require(text.size() == length, "[npy] {}: the file ends in its header", name);
  Header header(text_of(text), name);
  header.parse();
  require(!header.fortran || header.shape.rank() <= 1, "[npy] {}: in Fortran order; save it with numpy.ascontiguousarray", name);

  static_cast<void>(elements_of(header.shape, fmt::format("[npy] {}", name)));

  auto& d = header.descriptor;
  const bool complex = takes_complex && d.size() >= 3 && (d.substr(1) == "c8" || d.substr(1) == "c16");
  if (complex) {
    require(header.shape.rank() < Shape::max_rank, "[npy] {}: complex arrays have at most {} dimensions", name,
            Shape::max_rank - 1);
    header.shape.push_back(2);
    d = d.substr(0, 1) + (d.ends_with("c8") ? "f4" : "f8");
  }
  int size = 0;
  const bool known = d.size() >= 3 && std::string_view("<>|=").find(d[0]) != std::string_view::npos &&
                     std::string_view("uifb").find(d[1]) != std::string_view::npos &&
                     std::from_chars(d.data() + 2, d.data() + d.size(), size).ptr == d.data() + d.size();
  require(known, "[npy] {}: elements of type '{}' are not supported", name, printable(d, 200));
  const auto type = stored_type(d[1], size, d[0] == '>', name);
  return {header.shape, type, start.size() + digits.size() + text.size(), complex};
}

NumberArray parse_npy_elements(ByteStream& stream, const NpyHeader& header, const std::string& name) {
  const auto& type = header.type;
  const auto size = static_cast<double>(type.size);
  const auto elements = elements_of(header.shape, fmt::format("[npy] {}", name));
  auto values = take_elements(stream, elements * size, bytes_of_conversion(elements, type), fmt::format("[npy] {}", name),
                              fmt::format("{}", header.shape));
  return {header.shape, type.type, converted(std::move(values), type, name)};
}

NumberArray parse_npy(ByteStream& stream, const std::string& name) {
  return parse_npy_elements(stream, parse_npy_header(stream, name), name);
}

NumberArray read_npy_array(const std::filesystem::path& path) { return parse_npy(*open_stream(path), path.string()); }

std::vector<NamedArray> read_npz(const std::filesystem::path& path, const std::string& prefix) {
  std::vector<NamedArray> arrays;
  for (const auto& file : zip_names(path)) {
    constexpr std::string_view extension = ".npy";
    if (!file.ends_with(extension) || !file.starts_with(prefix)) continue;
    auto name = file.substr(0, file.size() - extension.size());
    arrays.push_back({name, parse_npy(*unzip(path, file), fmt::format("{}: '{}'", path.string(), printable(name)))});
  }
  return arrays;
}

Samples samples_of(NumberArray array, const std::filesystem::path& file) {
  const auto& s = array.shape;
  Samples samples{file, 0, 1, {1, 1, 1}, array.type, std::move(array.values)};
  require(s.rank() >= 3 && s.rank() <= 5 && s.elements() > 0,
          "[data] {}: samples must be [n, H, W], [n, H, W, C], [n, D, H, W] or [n, D, H, W, C], not {}", file.string(), s);
  samples.count = s[0];
  if (s.rank() == 3) samples.extents = {1, s[1], s[2]};
  else if (s.rank() == 4 && s[3] <= 4) samples.extents = {1, s[1], s[2]}, samples.channels = s[3];
  else samples.extents = {s[1], s[2], s[3]};
  if (s.rank() == 5) samples.channels = s[4];
  return samples;
}

std::string npy_header(const Shape& shape, DType dtype) {
  require(dtype != DType::bfloat16, "[npy] NumPy has no bfloat16; cast to float32 first");
  std::string extents;
  for (const auto extent : shape) extents += fmt::format("{}, ", extent);
  const char kind = dtype == DType::boolean                           ? 'b'
                    : is_floating(dtype)                              ? 'f'
                    : is_complex(dtype)                               ? 'c'
                    : dtype == DType::uint8 || dtype == DType::uint16 ? 'u'
                                                                      : 'i';
  auto header = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}), }}", size_of(dtype) == 1 ? '|' : '<',
                            kind, size_of(dtype), extents);
  // Magic, version and length take 10 bytes; the data begin at a multiple of 64.
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ').push_back('\n');
  std::string head("\x93NUMPY\x01\x00", 8);
  head.push_back(static_cast<char>(header.size() & 0xff)), head.push_back(static_cast<char>(header.size() >> 8));
  return head + header;
}

}  // namespace mpigrad::data
