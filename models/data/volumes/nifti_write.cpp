#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"
#include "framework/base/new_file.h"
#include "models/data/volumes/nifti.h"
#include "models/data/volumes/nifti_header.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

void require_place(const fs::path& path, bool overwrite) {
  require(overwrite || !is_name_taken(path), "[nifti] {}: exists already; it is replaced only when asked to overwrite",
          path.string());
}

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes[at + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i & 0xff);
}

// A header for these cells: pixdim and, if their file places them, sform.
Bytes plain_header_of(const VolumeHeader& like) {
  const auto& l = nifti_1;
  Bytes bytes(l.size);
  const auto number = [&](std::size_t at, double value) {
    put(bytes, at, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  };
  number(l.pixdim, 1);            // qfac
  bytes[l.units] = std::byte{2};  // millimetres
  for (std::size_t a = 0; a < 3; ++a) number(l.pixdim + 4 * (a + 1), like.spacing[2 - a]);
  if (!like.placed) return bytes;
  put(bytes, l.sform, std::int16_t{1});  // scanner
  for (std::size_t i = 0; i < 12; ++i) number(l.rows + 4 * i, like.affine[i]);
  return bytes;
}

bool is_own(const VolumeHeader& like) { return like.format == nifti_name && !like.bytes.empty(); }
const NiftiLayout& layout_for(const VolumeHeader& like) { return is_own(like) ? nifti_layout(like.bytes.size()) : nifti_1; }

// The header of labels of `size` bytes each, and the bytes between the header and the labels: no extensions, four zeros.
Bytes header_of(const VolumeHeader& like, int size) {
  const auto& l = layout_for(like);
  const auto offset = l.size + 4;
  Bytes bytes(offset);
  const auto extent = [&](std::size_t i, std::int64_t value) {
    if (l.dim_size == 2) put(bytes, l.dim + 2 * i, static_cast<std::int16_t>(value));
    else put(bytes, l.dim + 8 * i, value);
  };
  put(bytes, 0, static_cast<std::int32_t>(l.size));
  extent(0, 3);
  for (int i = 0; i < 7; ++i) extent(static_cast<std::size_t>(i) + 1, i < 3 ? like.extents[2 - i] : 1);
  put(bytes, l.type, static_cast<std::int16_t>(size == 1 ? 2 : 8)), put(bytes, l.bits, static_cast<std::int16_t>(8 * size));
  if (l.version == 1) {
    put(bytes, l.offset, std::bit_cast<std::uint32_t>(static_cast<float>(offset)));
    put(bytes, l.factor, std::bit_cast<std::uint32_t>(1.0F));
  } else {
    put(bytes, l.offset, static_cast<std::int64_t>(offset)), put(bytes, l.factor, std::bit_cast<std::uint64_t>(1.0));
  }
  const auto from = is_own(like) ? like.bytes : plain_header_of(like);
  const auto keep = [&](std::size_t at, std::size_t count) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), count, bytes.begin() + static_cast<std::ptrdiff_t>(at));
  };
  keep(l.pixdim, 8 * l.real_size), keep(l.units, 1), keep(l.description, 80);
  keep(l.qform, l.rows + 12 * l.real_size - l.qform);  // codes and numbers of qform and sform
  if (l.version == 1) std::memcpy(bytes.data() + l.magic, "n+1", 4);
  else std::memcpy(bytes.data() + l.magic, "n+2\0\r\n\x1a\n", 8);
  return bytes;
}

}  // namespace

void write_nifti_labels(const fs::path& path, std::span<const std::int32_t> labels, const VolumeHeader& like, bool overwrite) {
  const auto name = path.string();
  const auto& e = like.extents;
  const std::int64_t most_extent = layout_for(like).version == 1 ? 32767 : std::int64_t{1} << 40;
  require(e.rank() == 3 && std::all_of(e.begin(), e.end(), [&](std::int64_t n) { return n >= 1 && n <= most_extent; }),
          "[nifti] {}: extents are [D, H, W], 1 to {} each: {}", name, most_extent, e);
  const auto cells = static_cast<std::size_t>(e.elements());
  require(labels.size() == cells, "[nifti] {}: {} labels for the {} cells of {}", name, labels.size(), cells, e);
  std::int32_t most = 0;
  for (std::size_t i = 0; i < cells; ++i) {
    const auto cell = static_cast<std::int64_t>(i);
    if (labels[i] < 0)
      fail("[nifti] {}: {} at {} [z, y, x] is not a label: labels must not be negative", name, labels[i],
           Shape{cell / e[2] / e[1], cell / e[2] % e[1], cell % e[2]});
    most = std::max(most, labels[i]);
  }
  const auto ending = path.extension().string();
  const bool packed = ending.size() == 3 && (ending[1] | 0x20) == 'g' && (ending[2] | 0x20) == 'z';  // in either case
  require(!packed || gzip_available(), "[nifti] {}: this build cannot write gzip: install zlib1g-dev and configure again", name);
  require_place(path, overwrite);

  const std::size_t size = most < 256 ? 1 : 4;
  constexpr std::size_t piece = std::size_t{1} << 28;  // of a packed file, a gzip member for each piece
  const auto offset = layout_for(like).size + 4, total = offset + cells * size;
  require_host_memory(fmt::format("[nifti] {}", name), static_cast<double>(total + (packed ? std::min(total, piece) : 0)));
  auto bytes = header_of(like, static_cast<int>(size));
  bytes.resize(total);
  for (std::size_t i = 0; i < cells; ++i)
    if (size == 1) bytes[offset + i] = static_cast<std::byte>(labels[i]);
    else put(bytes, offset + 4 * i, labels[i]);

  NewFile file(path, "nifti");
  for (std::size_t at = 0; at < total; at += piece) {
    const auto plain = std::span<const std::byte>(bytes).subspan(at, std::min(piece, total - at));
    if (packed) file.write(gzip(plain));
    else file.write(plain);
  }
  require_place(path, overwrite);  // again, because writing took time
  file.commit();
}

}  // namespace mpigrad::data
