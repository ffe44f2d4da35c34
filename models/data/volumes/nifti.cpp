#include "models/data/volumes/nifti.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "framework/base/host_memory.h"
#include "framework/base/joined.h"
#include "models/data/sources/bytes.h"
#include "models/data/sources/formats.h"
#include "models/data/volumes/nifti_header.h"

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
  const auto stated = take_nifti_header(*file.stream, name);
  auto dim = stated.dim;
  require(dim[0] >= 1 && dim[0] <= 7, "[nifti] {}: {} dimensions", name, dim[0]);
  for (std::size_t i = 1; i < 8; ++i) {
    if (static_cast<std::int64_t>(i) > dim[0]) dim[i] = 1;
    require(dim[i] >= 1 && (i <= 4 || dim[i] == 1), "[nifti] {}: extents {}: volumes [x, y, z] or [x, y, z, C] are read", name,
            joined(std::span(dim).subspan(1), ", "));
  }
  (void)elements_of({dim[4], dim[3], dim[2], dim[1]}, fmt::format("[nifti] {}", name));
  h.extents = {dim[3], dim[2], dim[1]}, h.channels = dim[4];
  file.stored = element_type(stated.type, stated.big, name), h.type = file.stored.type;

  const auto header = static_cast<double>(stated.layout->size), least = header + 4;
  const auto offset = stated.offset, left = file.stream->most_left();
  // The least that the standard allows in a single file; readers disagree about the meaning of less.
  require(!(offset < least), "[nifti] {}: vox_offset is {}; in a single file the volume begins at byte {} or later", name, offset,
          least);
  require(offset >= least && offset - header <= left && offset == std::floor(offset),
          "[nifti] {}: the volume begins at byte {} of {}", name, offset, left + header);
  file.before = offset - header;
  require(file.before + file.bytes() <= left, "[nifti] {}: truncated: {:.0f} bytes of elements, {:.0f} make {}", name,
          left - file.before, file.bytes(), file.shape());

  h.slope = stated.factor, h.shift = stated.shift;
  if (h.slope == 0 || !std::isfinite(h.slope) || !std::isfinite(h.shift)) h.slope = 1, h.shift = 0;
  set_nifti_geometry(h, stated);
  h.bytes = stated.bytes, h.format = nifti_name;
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
    if (!(std::abs(label) <= most && std::abs(value - label) <= close))
      fail("[nifti] {}: {} at {} [z, y, x] is not a label: labels are whole numbers of up to {:.0f}, to within {}", file.name,
           value, place_of(static_cast<std::int64_t>(i), extents), most, close);
    labels.values[i] = static_cast<std::int32_t>(label);
  });
  return labels;
}

}  // namespace mpigrad::data
