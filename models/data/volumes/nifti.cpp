#include "models/data/volumes/nifti.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "framework/base/host_memory.h"
#include "framework/base/joined.h"
#include "models/data/sources/bytes.h"
#include "models/data/sources/formats.h"

namespace mpigrad::data {
namespace {

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
    default: fail("[nifti] {}: elements of type {} are not supported, only integers and floating-point numbers", name, code);
  }
}

// Places of the numbers in a header: `count` numbers of `size` bytes at `at`. Everything else is text and single bytes.
struct Numbers {
  std::size_t at, size, count;
};
constexpr Numbers numbers_of_header[]{{0, 4, 1},   {32, 4, 1},  {36, 2, 1},  {40, 2, 8},  {56, 4, 3},  {68, 2, 4},
                                      {76, 4, 11}, {120, 2, 1}, {124, 4, 6}, {252, 2, 2}, {256, 4, 18}};

void reverse_numbers(Bytes& header) {
  for (const auto& [at, size, count] : numbers_of_header)
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = header.begin() + static_cast<std::ptrdiff_t>(at + i * size);
      std::reverse(first, first + static_cast<std::ptrdiff_t>(size));
    }
}

// A number of a header in little-endian order.
template <class T>
T number(const Bytes& header, std::size_t at) {
  std::array<std::byte, sizeof(T)> bytes{};
  std::copy_n(header.begin() + static_cast<std::ptrdiff_t>(at), sizeof(T), bytes.begin());
  if (std::endian::native == std::endian::big) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

double real(const Bytes& header, std::size_t at) { return static_cast<double>(number<float>(header, at)); }

bool finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The file's unit of length in millimetres.
double unit_of(const Bytes& header) {
  switch (static_cast<int>(header[123]) & 7) {
    case 1: return 1000;
    case 3: return 0.001;
    default: return 1;
  }
}

std::array<double, 3> spacing_of(const Bytes& header) {
  std::array<double, 3> spacing{1, 1, 1};
  for (std::size_t a = 0; a < 3; ++a)
    if (const double length = std::abs(real(header, 88 - 4 * a)) * unit_of(header); std::isfinite(length) && length > 0)
      spacing[a] = length;
  return spacing;
}

// nifti1.h, "METHOD 3": the affine map itself. Rows of [R | t].
std::array<double, 12> sform_of(const Bytes& header) {
  std::array<double, 12> affine{};
  for (std::size_t i = 0; i < 12; ++i) affine[i] = real(header, 280 + 4 * i) * unit_of(header);
  return affine;
}

// nifti1.h, "METHOD 2": R is the rotation of the unit quaternion (a, b, c, d), a >= 0, times diag(dx, dy, +-dz).
std::array<double, 12> qform_of(const Bytes& header, const std::array<double, 3>& spacing) {
  double b = real(header, 256), c = real(header, 260), d = real(header, 264);
  const double rest = 1 - (b * b + c * c + d * d);
  double a = rest < 1e-7 ? 0 : std::sqrt(rest);
  if (a == 0) {  // half a turn; rounding may have made (b, c, d) longer than 1
    const double length = std::sqrt(b * b + c * c + d * d);
    b /= length, c /= length, d /= length;
  }
  const double x = spacing[2], y = spacing[1], z = real(header, 76) < 0 ? -spacing[0] : spacing[0], unit = unit_of(header);
  return {(a * a + b * b - c * c - d * d) * x,
          2 * (b * c - a * d) * y,
          2 * (b * d + a * c) * z,
          real(header, 268) * unit,
          2 * (b * c + a * d) * x,
          (a * a + c * c - b * b - d * d) * y,
          2 * (c * d - a * b) * z,
          real(header, 272) * unit,
          2 * (b * d - a * c) * x,
          2 * (c * d + a * b) * y,
          (a * a + d * d - c * c - b * b) * z,
          real(header, 276) * unit};
}

std::array<double, 12> affine_of(const Bytes& header, const std::array<double, 3>& spacing) {
  if (number<std::int16_t>(header, 254) > 0)
    if (const auto sform = sform_of(header); finite(sform)) return sform;
  if (number<std::int16_t>(header, 252) > 0)
    if (const auto qform = qform_of(header, spacing); finite(qform)) return qform;
  return {spacing[2], 0, 0, 0, 0, spacing[1], 0, 0, 0, 0, spacing[0], 0};
}

// A file whose header has been read.
struct OpenFile {
  std::string name;
  ByteStreamPtr stream;
  StoredType stored{};
  double before = 0;  // bytes of the header's extensions, up to the elements
  VolumeHeader header{};

  double elements() const { return static_cast<double>(header.extents.elements() * header.channels); }
  double bytes() const { return elements() * stored.size; }
  std::string shape() const {
    const auto& e = header.extents;
    return fmt::format("{} x {} x {} x {}", e[2], e[1], e[0], header.channels);
  }
};

OpenFile open_nifti(const std::filesystem::path& path) {
  OpenFile file{path.string(), open_stream(path)};
  const auto& name = file.name;
  auto& h = file.header;
  h.bytes = take(*file.stream, nifti_header_bytes);
  require(h.bytes.size() >= nifti_header_bytes, "[nifti] {}: not a NIfTI-1 file: {} bytes are shorter than its header", name,
          h.bytes.size());
  const auto first = big_endian<std::uint32_t>(h.bytes.data());
  constexpr std::uint32_t header_of_2 = 540, swapped_header_of_2 = 0x1c020000;
  require(first != header_of_2 && first != swapped_header_of_2,
          "[nifti] {}: a NIfTI-2 file; only NIfTI-1 is read: save it as NIfTI-1", name);
  const bool big = first == nifti_header_bytes;
  if (big) reverse_numbers(h.bytes);
  const auto* magic = reinterpret_cast<const char*>(h.bytes.data() + 344);
  require(std::memcmp(magic, "ni1", 4) != 0, "[nifti] {}: the header of a pair of files; only single files (.nii) are read",
          name);
  require(number<std::int32_t>(h.bytes, 0) == 348 && std::memcmp(magic, "n+1", 4) == 0, "[nifti] {}: not a NIfTI-1 file", name);

  std::array<std::int64_t, 8> dim{};
  for (std::size_t i = 0; i < 8; ++i) dim[i] = number<std::int16_t>(h.bytes, 40 + 2 * i);
  require(dim[0] >= 1 && dim[0] <= 7, "[nifti] {}: {} dimensions", name, dim[0]);
  for (std::size_t i = 1; i < 8; ++i) {
    if (static_cast<std::int64_t>(i) > dim[0]) dim[i] = 1;
    require(dim[i] >= 1 && (i <= 4 || dim[i] == 1), "[nifti] {}: extents {}: volumes [x, y, z] or [x, y, z, C] are read", name,
            joined(std::span(dim).subspan(1), ", "));
  }
  h.extents = {dim[3], dim[2], dim[1]}, h.channels = dim[4];
  file.stored = element_type(number<std::int16_t>(h.bytes, 70), big, name), h.type = file.stored.type;

  const auto offset = real(h.bytes, 108);
  const auto left = file.stream->most_left();
  // The least that the standard allows in a single file; readers disagree about the meaning of less.
  require(!(offset < 352), "[nifti] {}: vox_offset is {}; in a single file the volume begins at byte 352 or later", name, offset);
  require(offset >= 352 && offset - 348 <= left && offset == std::floor(offset), "[nifti] {}: the volume begins at byte {} of {}",
          name, offset, left + 348);
  file.before = offset - 348;
  require(file.before + file.bytes() <= left, "[nifti] {}: truncated: {:.0f} bytes of elements, {:.0f} make {}", name,
          left - file.before, file.bytes(), file.shape());

  h.slope = real(h.bytes, 112), h.shift = real(h.bytes, 116);
  if (h.slope == 0 || !std::isfinite(h.slope) || !std::isfinite(h.shift)) h.slope = 1, h.shift = 0;
  h.spacing = spacing_of(h.bytes), h.affine = affine_of(h.bytes, h.spacing);
  h.placed = number<std::int16_t>(h.bytes, 252) > 0 || number<std::int16_t>(h.bytes, 254) > 0;
  h.format = nifti_name;
  return file;
}

// All stored elements as header.type, in the file's order. Also checks that memory is left for a float or int32 for each.
Bytes take_stored(OpenFile& file) {
  require_host_memory(
      fmt::format("[nifti] {}", file.name),
      file.before + file.bytes() + bytes_of_conversion(file.elements(), file.stored) + file.elements() * sizeof(float));
  (void)take(*file.stream, static_cast<std::size_t>(file.before));
  auto elements = take(*file.stream, static_cast<std::size_t>(file.bytes()));
  require(static_cast<double>(elements.size()) == file.bytes(), "[nifti] {}: truncated: {} bytes of elements, {:.0f} make {}",
          file.name, elements.size(), file.bytes(), file.shape());
  // A few bytes may follow; reading on to the end also verifies gzip's checksum.
  constexpr std::size_t rest = 1 << 20;
  require(take(*file.stream, rest).size() < rest, "[nifti] {}: longer than it says: {:.0f} bytes of elements make {}", file.name,
          file.bytes(), file.shape());
  return converted(std::move(elements), file.stored, file.name);
}

Shape place_of(std::int64_t cell, const Shape& extents) {
  return {cell / extents[2] / extents[1], cell / extents[2] % extents[1], cell % extents[2]};
}

// f(place in [D, H, W, C], value) for all values in the file's order, where each channel is a volume. Error: a finite number that
// float32 cannot hold.
template <class F>
void for_each_value(const VolumeHeader& header, const Bytes& stored, const std::string& name, F f) {
  const auto cells = header.extents.elements(), channels = header.channels;
  const double slope = header.slope, shift = header.shift;
  visit_stored(header.type, [&](auto zero) {
    const auto* from = reinterpret_cast<const decltype(zero)*>(stored.data());
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < cells; ++i) {
        const auto number = static_cast<double>(from[c * cells + i]), value = slope * number + shift;
        if (!(std::abs(value) <= greatest_float32) && std::isfinite(number))
          fail("[nifti] {}: {} at {} [z, y, x] is beyond float32, whose greatest number is {:.3g}", name, value,
               place_of(i, header.extents), std::numeric_limits<float>::max());
        f(static_cast<std::size_t>(i * channels + c), value);
      }
  });
}

}  // namespace

VolumeHeader read_nifti_header(const std::filesystem::path& path) { return open_nifti(path).header; }

augment::Sample read_nifti(const std::filesystem::path& path) {
  auto file = open_nifti(path);
  const auto stored = take_stored(file);
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for_each_value(file.header, stored, file.name, [&](std::size_t, double value) {
    if (std::isfinite(value)) least = std::min(least, value), most = std::max(most, value);
  });
  const double factor = most > least ? 1 / (most - least) : 0;
  augment::Sample sample(file.header.extents, file.header.channels);
  for_each_value(file.header, stored, file.name,
                 [&](std::size_t i, double value) { sample.values[i] = static_cast<float>((value - least) * factor); });
  return sample;
}

VolumeValues read_nifti_volume(const std::filesystem::path& path) {
  auto file = open_nifti(path);
  const auto stored = take_stored(file);
  VolumeValues volume{std::move(file.header), {}};
  volume.values.resize(static_cast<std::size_t>(volume.header.extents.elements() * volume.header.channels));
  for_each_value(volume.header, stored, file.name,
                 [&](std::size_t i, double value) { volume.values[i] = static_cast<float>(value); });
  return volume;
}

VolumeLabels read_nifti_labels(const std::filesystem::path& path) {
  auto file = open_nifti(path);
  require(file.header.channels == 1, "[nifti] {}: {} channels: labels need one number for each cell", file.name,
          file.header.channels);
  const auto stored = take_stored(file);
  VolumeLabels labels{std::move(file.header), {}};
  const auto& extents = labels.header.extents;
  labels.values.resize(static_cast<std::size_t>(extents.elements()));
  for_each_value(labels.header, stored, file.name, [&](std::size_t i, double value) {
    constexpr double most = std::numeric_limits<std::int32_t>::max(), close = 1e-3;
    const double label = std::round(value);
    if (!(label >= 0 && label <= most && std::abs(value - label) <= close))
      fail("[nifti] {}: {} at {} [z, y, x] is not a label: labels are whole numbers from 0 to {:.0f}, to within {}", file.name,
           value, place_of(static_cast<std::int64_t>(i), extents), most, close);
    labels.values[i] = static_cast<std::int32_t>(label);
  });
  return labels;
}

}  // namespace mpigrad::data
