#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"
#include "framework/base/new_file.h"
#include "models/data/volumes/nifti.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t offset = 352;  // no extensions: four zeros after the header

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
  Bytes bytes(nifti_header_bytes);
  const auto number = [&](std::size_t at, double value) {
    put(bytes, at, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  };
  number(76, 1);                                                                // pixdim[0], qfac
  bytes[123] = std::byte{2};                                                    // millimetres
  for (std::size_t a = 0; a < 3; ++a) number(80 + 4 * a, like.spacing[2 - a]);  // pixdim
  if (!like.placed) return bytes;
  put(bytes, 254, std::int16_t{1});                                          // sform_code: scanner
  for (std::size_t i = 0; i < 12; ++i) number(280 + 4 * i, like.affine[i]);  // srow_x, srow_y, srow_z
  return bytes;
}

// The header of labels of `size` bytes each, and the bytes between the header and the labels.
Bytes header_of(const VolumeHeader& like, int size) {
  Bytes bytes(offset);
  put(bytes, 0, std::int32_t{nifti_header_bytes});
  put(bytes, 40, std::int16_t{3});
  for (int i = 0; i < 7; ++i)
    put(bytes, 42 + 2 * static_cast<std::size_t>(i), static_cast<std::int16_t>(i < 3 ? like.extents[2 - i] : 1));
  put(bytes, 70, static_cast<std::int16_t>(size == 1 ? 2 : 8)), put(bytes, 72, static_cast<std::int16_t>(8 * size));
  constexpr std::uint32_t one = 0x3f800000, start = 0x43b00000;  // 1.0F, 352.0F
  put(bytes, 108, start), put(bytes, 112, one);
  // pixdim, units, description, codes and numbers of qform and sform.
  constexpr std::pair<int, int> kept[]{{76, 32}, {123, 1}, {148, 80}, {252, 76}};
  const bool own = like.format == nifti_name && like.bytes.size() == nifti_header_bytes;
  const auto from = own ? like.bytes : plain_header_of(like);
  for (const auto& [at, count] : kept) std::copy_n(from.begin() + at, count, bytes.begin() + at);
  std::memcpy(bytes.data() + 344, "n+1", 4);
  return bytes;
}

}  // namespace

void write_nifti_labels(const fs::path& path, std::span<const std::int32_t> labels, const VolumeHeader& like, bool overwrite) {
  const auto name = path.string();
  const auto& e = like.extents;
  require(e.rank() == 3 && std::all_of(e.begin(), e.end(), [](std::int64_t n) { return n >= 1 && n <= 32767; }),
          "[nifti] {}: extents are [D, H, W], 1 to 32767 each: {}", name, e);
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
  const bool packed = path.extension() == ".gz" || path.extension() == ".GZ";
  require(!packed || gzip_available(), "[nifti] {}: this build cannot write gzip: install zlib1g-dev and configure again", name);
  require_place(path, overwrite);

  const std::size_t size = most < 256 ? 1 : 4;
  constexpr std::size_t piece = std::size_t{1} << 28;  // of a packed file, a gzip member for each piece
  const auto total = offset + cells * size;
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
