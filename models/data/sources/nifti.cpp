#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/joined.h"
#include "framework/tensor/host_memory.h"
#include "models/data/sources/formats.h"

namespace mpigrad::data {
namespace {

constexpr std::size_t header_bytes = 348;

StoredType element_type(int code, bool big, const std::string& name) {
  switch (code) {
    case 2: return stored_type('u', 1, big, name);
    case 4: return stored_type('i', 2, big, name);
    case 8: return stored_type('i', 4, big, name);
    case 16: return stored_type('f', 4, big, name);
    case 64: return stored_type('f', 8, big, name);
    case 256: return stored_type('i', 1, big, name);
    case 512: return stored_type('u', 2, big, name);
    case 768: return stored_type('u', 4, big, name);
    case 1024: return stored_type('i', 8, big, name);
    case 1280: return stored_type('u', 8, big, name);
    default: fail("[nifti] {}: elements of type {} are not read: only integers and floating-point numbers are", name, code);
  }
}

// Scalars of the header, in the file's byte order.
class Fields {
 public:
  Fields(const Bytes& bytes, bool big) : bytes_(bytes), big_(big) {}
  template <class T>
  T at(std::size_t offset, char kind) const {
    const auto value = converted(bytes_.data() + offset, 1, stored_type(kind, sizeof(T), big_, ""), "");
    T result{};
    std::memcpy(&result, value.data(), sizeof(T));
    return result;
  }

 private:
  const Bytes& bytes_;
  bool big_;
};

}  // namespace

augment::Sample read_nifti(const std::filesystem::path& path) {
  const auto stream = open_stream(path);
  const auto name = path.string();
  const auto bytes = take(*stream, header_bytes);
  require(bytes.size() >= header_bytes, "[nifti] {}: not a NIfTI-1 file: {} bytes are shorter than its header", name,
          bytes.size());
  const bool big = Fields(bytes, true).at<std::int32_t>(0, 'i') == 348;
  const Fields fields(bytes, big);
  const auto* magic = reinterpret_cast<const char*>(bytes.data() + 344);
  require(std::memcmp(magic, "ni1", 4) != 0, "[nifti] {}: the header of a pair of files; only single files (.nii) are read",
          name);
  require(fields.at<std::int32_t>(0, 'i') == 348 && std::memcmp(magic, "n+1", 4) == 0, "[nifti] {}: not a NIfTI-1 file", name);

  std::array<std::int64_t, 8> dim{};
  for (std::size_t i = 0; i < 8; ++i) dim[i] = fields.at<std::int16_t>(40 + 2 * i, 'i');
  require(dim[0] >= 1 && dim[0] <= 7, "[nifti] {}: {} dimensions", name, dim[0]);
  double total = 1;
  for (std::size_t i = 1; i < 8; ++i) {
    if (static_cast<std::int64_t>(i) > dim[0]) dim[i] = 1;
    require(dim[i] >= 1 && (i <= 4 || dim[i] == 1), "[nifti] {}: extents {}: volumes [x, y, z] or [x, y, z, C] are read", name,
            joined(std::span(dim).subspan(1), ", "));
    total *= static_cast<double>(dim[i]);
  }
  const auto type = element_type(fields.at<std::int16_t>(70, 'i'), big, name);
  const auto offset = static_cast<double>(fields.at<float>(108, 'f'));
  const auto left = stream->most_left();
  require(offset >= 348 && offset - 348 <= left && offset == std::floor(offset), "[nifti] {}: the volume begins at byte {} of {}",
          name, offset, left + 348);
  const auto shape = fmt::format("{} x {} x {} x {}", dim[1], dim[2], dim[3], dim[4]);
  const auto bytes_of_all = total * type.size;
  const auto before = offset - 348;
  require(before + bytes_of_all <= left, "[nifti] {}: truncated: {:.0f} bytes of elements, {:.0f} make {}", name, left - before,
          bytes_of_all, shape);
  require_host_memory(fmt::format("[nifti] {}", name),
                      before + bytes_of_all + bytes_of_conversion(total, type) + total * sizeof(float));
  (void)take(*stream, static_cast<std::size_t>(before));  // extensions of the header
  auto elements = take(*stream, static_cast<std::size_t>(bytes_of_all));
  require(static_cast<double>(elements.size()) == bytes_of_all, "[nifti] {}: truncated: {} bytes of elements, {:.0f} make {}",
          name, elements.size(), bytes_of_all, shape);
  // Some bytes may follow, and gzip's checksum is behind them.
  constexpr std::size_t rest = 1 << 20;
  require(take(*stream, rest).size() < rest, "[nifti] {}: longer than it says: {:.0f} bytes of elements make {}", name,
          bytes_of_all, shape);

  augment::Sample sample({dim[3], dim[2], dim[1]}, dim[4]);
  const auto cells = sample.extents.elements();
  auto slope = static_cast<double>(fields.at<float>(112, 'f')), shift = static_cast<double>(fields.at<float>(116, 'f'));
  if (slope == 0 || !std::isfinite(slope) || !std::isfinite(shift)) slope = 1, shift = 0;
  const auto values = converted(std::move(elements), type, name);
  double least = std::numeric_limits<double>::infinity(), most = -least;
  visit_arithmetic(type.type, [&](auto zero) {
    const auto* from = reinterpret_cast<const decltype(zero)*>(values.data());
    const auto value = [&](std::int64_t i) { return slope * static_cast<double>(from[i]) + shift; };
    for (std::int64_t i = 0; i < cells * dim[4]; ++i)
      if (const double v = value(i); std::isfinite(v)) least = std::min(least, v), most = std::max(most, v);
    const double factor = most > least ? 1 / (most - least) : 0;
    for (std::int64_t c = 0; c < dim[4]; ++c)
      for (std::int64_t i = 0; i < cells; ++i)
        sample.values[static_cast<std::size_t>(i * dim[4] + c)] = static_cast<float>((value(c * cells + i) - least) * factor);
  });
  return sample;
}

}  // namespace mpigrad::data
