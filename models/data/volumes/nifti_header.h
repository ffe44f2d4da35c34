#pragma once
// Headers of NIfTI-1 and NIfTI-2 files in one form. Not installed.

#include <array>
#include <cstdint>
#include <string>

#include "models/data/compressed/compressed.h"
#include "models/data/volumes/volume.h"

namespace mpigrad::data {

// Places of the fields in the header of a version, in bytes.
struct NiftiLayout {
  int version;
  std::size_t size, dim, type, bits, pixdim, offset, factor, shift, qform, sform, quaternion, rows, units, description, magic;
  std::size_t dim_size, real_size, form_size;  // bytes of an extent, of a number such as pixdim, of a form's code
};
inline constexpr NiftiLayout nifti_1{1, 348, 40, 70, 72, 76, 108, 112, 116, 252, 254, 256, 280, 123, 148, 344, 2, 4, 2};
inline constexpr NiftiLayout nifti_2{2, 540, 16, 12, 14, 104, 168, 176, 184, 344, 348, 352, 400, 500, 240, 4, 8, 8, 4};
// The layout of a header of so many bytes. Error: neither version has such headers.
const NiftiLayout& nifti_layout(std::size_t size);

struct NiftiHeader {
  const NiftiLayout* layout = &nifti_1;
  bool big = false;  // the file's numbers are big-endian
  Bytes bytes{};     // the header, with little-endian numbers
  std::array<std::int64_t, 8> dim{};
  int type = 0;
  double offset = 0, factor = 1, shift = 0;
};
// Reads the header at the beginning of a file. Errors, with `name`: shorter than a header, neither version, one half of a pair of
// files.
NiftiHeader take_nifti_header(ByteStream& stream, const std::string& name);
// Sets spacing, affine and placed from the header's pixdim, qform and sform, as read_nifti_header() describes.
void set_nifti_geometry(VolumeHeader& volume, const NiftiHeader& header);

}  // namespace mpigrad::data
