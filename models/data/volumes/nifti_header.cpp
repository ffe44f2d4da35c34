#include "models/data/volumes/nifti_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "framework/base/error.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {
namespace {

// Places of the numbers in a header: `count` numbers of `size` bytes at `at`. Everything else is text and single bytes.
struct Numbers {
  std::size_t at, size, count;
};
constexpr Numbers numbers_of_1[]{{0, 4, 1},   {32, 4, 1},  {36, 2, 1},  {40, 2, 8},  {56, 4, 3},  {68, 2, 4},
                                 {76, 4, 11}, {120, 2, 1}, {124, 4, 6}, {252, 2, 2}, {256, 4, 18}};
constexpr Numbers numbers_of_2[]{{0, 4, 1},   {12, 2, 2},  {16, 8, 8},  {80, 8, 3},   {104, 8, 8},
                                 {168, 8, 7}, {224, 8, 2}, {344, 4, 2}, {352, 8, 18}, {496, 4, 3}};

void reverse_numbers(Bytes& header, std::span<const Numbers> numbers) {
  for (const auto& [at, size, count] : numbers)
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

std::int64_t whole(const Bytes& header, std::size_t at, std::size_t size) {
  if (size == 2) return number<std::int16_t>(header, at);
  return size == 4 ? number<std::int32_t>(header, at) : number<std::int64_t>(header, at);
}

// Number `i` of those at `at`.
double real(const NiftiHeader& header, std::size_t at, std::size_t i = 0) {
  const auto place = at + i * header.layout->real_size;
  return header.layout->real_size == 4 ? static_cast<double>(number<float>(header.bytes, place))
                                       : number<double>(header.bytes, place);
}

bool finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The file's unit of length in millimetres.
double unit_of(const NiftiHeader& header) {
  switch (static_cast<int>(header.bytes[header.layout->units]) & 7) {
    case 1: return 1000;
    case 3: return 0.001;
    default: return 1;
  }
}

std::array<double, 3> spacing_of(const NiftiHeader& header) {
  std::array<double, 3> spacing{1, 1, 1};
  for (std::size_t a = 0; a < 3; ++a)
    if (const double length = std::abs(real(header, header.layout->pixdim, 3 - a)) * unit_of(header);
        std::isfinite(length) && length > 0)
      spacing[a] = length;
  return spacing;
}

// nifti1.h, "METHOD 3": the affine map itself. Rows of [R | t].
std::array<double, 12> sform_of(const NiftiHeader& header) {
  std::array<double, 12> affine{};
  for (std::size_t i = 0; i < 12; ++i) affine[i] = real(header, header.layout->rows, i) * unit_of(header);
  return affine;
}

// nifti1.h, "METHOD 2": R is the rotation of the unit quaternion (a, b, c, d), a >= 0, times diag(dx, dy, +-dz).
std::array<double, 12> qform_of(const NiftiHeader& header, const std::array<double, 3>& spacing) {
  const auto from = [&](std::size_t i) { return real(header, header.layout->quaternion, i); };
  double b = from(0), c = from(1), d = from(2);
  const double rest = 1 - (b * b + c * c + d * d);
  double a = rest < 1e-7 ? 0 : std::sqrt(rest);
  if (a == 0) {  // half a turn; rounding may have made (b, c, d) longer than 1
    const double length = std::sqrt(b * b + c * c + d * d);
    b /= length, c /= length, d /= length;
  }
  const double x = spacing[2], y = spacing[1], z = real(header, header.layout->pixdim) < 0 ? -spacing[0] : spacing[0],
               unit = unit_of(header);
  return {(a * a + b * b - c * c - d * d) * x,
          2 * (b * c - a * d) * y,
          2 * (b * d + a * c) * z,
          from(3) * unit,
          2 * (b * c + a * d) * x,
          (a * a + c * c - b * b - d * d) * y,
          2 * (c * d - a * b) * z,
          from(4) * unit,
          2 * (b * d - a * c) * x,
          2 * (c * d + a * b) * y,
          (a * a + d * d - c * c - b * b) * z,
          from(5) * unit};
}

}  // namespace

const NiftiLayout& nifti_layout(std::size_t size) {
  require(size == nifti_1.size || size == nifti_2.size, "[nifti] no header has {} bytes", size);
  return size == nifti_1.size ? nifti_1 : nifti_2;
}

NiftiHeader take_nifti_header(ByteStream& stream, const std::string& name) {
  NiftiHeader h;
  h.bytes = take(stream, nifti_1.size);
  require(h.bytes.size() >= nifti_1.size, "[nifti] {}: not a NIfTI file: {} bytes are shorter than its header", name,
          h.bytes.size());
  const auto first = big_endian<std::uint32_t>(h.bytes.data());
  h.big = first == nifti_1.size || first == nifti_2.size;
  if (first == nifti_2.size || number<std::uint32_t>(h.bytes, 0) == nifti_2.size) {
    h.layout = &nifti_2;
    const auto rest = take(stream, nifti_2.size - nifti_1.size);
    h.bytes.insert(h.bytes.end(), rest.begin(), rest.end());
    require(h.bytes.size() == nifti_2.size, "[nifti] {}: truncated: {} bytes of a NIfTI-2 header", name, h.bytes.size());
  }
  const auto& l = *h.layout;
  if (h.big) reverse_numbers(h.bytes, l.version == 1 ? std::span<const Numbers>(numbers_of_1) : numbers_of_2);
  const auto* magic = reinterpret_cast<const char*>(h.bytes.data() + l.magic);
  const auto is = [&](const char* text, std::size_t count) { return std::memcmp(magic, text, count) == 0; };
  require(!(l.version == 1 ? is("ni1", 4) : is("ni2", 4)),
          "[nifti] {}: the header of a pair of files; only single files (.nii) are read", name);
  require(whole(h.bytes, 0, 4) == static_cast<std::int64_t>(l.size) && (l.version == 1 ? is("n+1", 4) : is("n+2\0\r\n\x1a\n", 8)),
          "[nifti] {}: not a NIfTI-{} file", name, l.version);
  for (std::size_t i = 0; i < 8; ++i) h.dim[i] = whole(h.bytes, l.dim + i * l.dim_size, l.dim_size);
  h.type = static_cast<int>(whole(h.bytes, l.type, 2));
  h.offset = l.version == 1 ? real(h, l.offset) : static_cast<double>(whole(h.bytes, l.offset, 8));
  h.factor = real(h, l.factor), h.shift = real(h, l.shift);
  return h;
}

void set_nifti_geometry(VolumeHeader& volume, const NiftiHeader& header) {
  const auto& l = *header.layout;
  const auto code = [&](std::size_t at) { return whole(header.bytes, at, l.form_size); };
  volume.spacing = spacing_of(header);
  volume.affine = {volume.spacing[2], 0, 0, 0, 0, volume.spacing[1], 0, 0, 0, 0, volume.spacing[0], 0};
  if (code(l.sform) > 0)
    if (const auto sform = sform_of(header); finite(sform)) return void((volume.affine = sform, volume.placed = true));
  if (code(l.qform) > 0)
    if (const auto qform = qform_of(header, volume.spacing); finite(qform)) volume.affine = qform, volume.placed = true;
}

}  // namespace mpigrad::data
