#pragma once
// NIfTI-1 in one file (.nii, .nii.gz) with its geometry and its real values, and labels written back onto the cells of a file
// that was read. Header: nifti1.h of the NIfTI data format working group. formats.h has read_nifti(), which scales to [0, 1].
//
// Errors of all readers name the file: missing, truncated, longer than it says, another format (NIfTI-2, too) or one half of a
// pair of files, more than four dimensions, a volume that begins before byte 352 (vox_offset; 0, too), elements that are neither
// integers nor floating-point numbers (RGB, complex), not enough memory, a finite number that float32 does not hold (with its
// place).

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

constexpr std::size_t nifti_header_bytes = 348;

struct NiftiHeader {
  Shape extents{1, 1, 1};       // [D, H, W]: z, y, x; x is the fastest in the file
  std::int64_t channels = 1;    // C, the fourth dimension, the slowest in the file
  DType type = DType::uint8;    // of the stored numbers: the smallest of the engine's that holds every value
  double slope = 1, shift = 0;  // value = slope * stored + shift; a slope of 0 in the file means 1 and 0
  // Millimetres from cell to cell along D, H, W: without a sign, in the file's units (none: millimetres), 1 where the file has 0
  // or what is not finite.
  std::array<double, 3> spacing{1, 1, 1};
  // Rows x, y, z of [R | t]: cell (i, j, k) along W, H, D lies at R (i, j, k) + t millimetres. The file's sform, else its qform,
  // else (a form is missing if its code is not positive or its numbers are not finite) the spacing alone and t = 0.
  std::array<double, 12> affine{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  // The file's 348 bytes, numbers little-endian. What is written with this geometry copies it from here: changes to spacing and
  // affine are not seen by it.
  Bytes bytes{};
};
// The header alone; of a packed file no more is unpacked. That the file goes on as it says is found out by those below.
NiftiHeader read_nifti_header(const std::filesystem::path& path);

struct NiftiVolume {
  NiftiHeader header{};
  std::vector<float> values{};  // [D, H, W, C], slope and shift applied in double
};
NiftiVolume read_nifti_volume(const std::filesystem::path& path);

struct NiftiLabels {
  NiftiHeader header{};
  std::vector<std::int32_t> values{};  // [D, H, W]
};
// A file of one channel whose values, stored as integers or floating-point numbers, are whole to within 0.001: programs that
// resample labels write such numbers. Errors beside those above: channels; a value that is not so close to a whole number from 0
// to 2^31 - 1, with its place.
NiftiLabels read_nifti_labels(const std::filesystem::path& path);

// What differs in where the cells of two files lie, in words ("extents [35, 51, 36] and [35, 50, 36]", "spacing ...",
// "places: ..."); "" if nothing does: extents are equal, the spacing is to within 1 % of a cell, and every cell of one is within
// 1 % of a cell from the same cell of the other. Channels, types and values are not compared.
std::string difference(const NiftiHeader& a, const NiftiHeader& b);

// Of cells that no file lies behind: [D, H, W] cells `spacing` mm apart, the first at 0.
NiftiHeader plain_nifti_header(const Shape& extents, const std::array<double, 3>& spacing = {1, 1, 1});

// Writes labels [D, H, W] onto the cells of `like`, which a function above has returned: its spacing, qform, sform, units and
// description are kept, all else is new. One volume, little-endian, uint8 if all labels are below 256, else int32; packed by gzip
// if the name ends in .gz. The file has a temporary name beside PATH and is renamed when it is complete; after an error there is
// nothing new at `path`. Errors, by name: the file exists and is not to be overwritten, cannot be made or is not complete (a full
// disk); .gz in a build without zlib; labels of another number than cells; a negative label, with its place; a `like` of no file.
void write_nifti_labels(const std::filesystem::path& path, std::span<const std::int32_t> labels, const NiftiHeader& like,
                        bool overwrite = false);

}  // namespace mpigrad::data
