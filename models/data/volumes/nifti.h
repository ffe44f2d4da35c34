#pragma once
// NIfTI-1 in one file (.nii, .nii.gz) with its geometry and its real values, and labels written back onto the cells of a file
// that was read. Header: nifti1.h of the NIfTI data format working group. formats.h has read_nifti(), which scales to [0, 1].
//
// Errors of all readers name the file: missing, truncated, longer than it says, another format (NIfTI-2, too) or one half of a
// pair of files, more than four dimensions, a volume that begins before byte 352 (vox_offset; 0, too), elements that are neither
// integers nor floating-point numbers (RGB, complex), not enough memory, a finite number that float32 does not hold (with its
// place).

#include <cstdint>
#include <filesystem>
#include <span>

#include "models/data/volumes/volume.h"

namespace mpigrad::data {

constexpr std::string_view nifti_name = "NIfTI";
constexpr std::size_t nifti_header_bytes = 348;

// x is the fastest in the file; channels, the fourth dimension, are the slowest. The spacing is 1 where the file has 0 or what is
// not finite; lengths are in the file's units (none: millimetres). `affine` is the file's sform, else its qform, else (a form is
// missing if its code is not positive or its numbers are not finite) the spacing alone and t = 0; `placed` is whether one of the
// codes is positive. `bytes` are the file's 348, numbers little-endian.
//
// The header alone; of a packed file no more is unpacked. That the file goes on as it says is found out by those below.
VolumeHeader read_nifti_header(const std::filesystem::path& path);
VolumeValues read_nifti_volume(const std::filesystem::path& path);

// A file of one channel whose values, stored as integers or floating-point numbers, are whole to within 0.001: programs that
// resample labels write such numbers. Errors beside those above: channels; a value that is not so close to a whole number from 0
// to 2^31 - 1, with its place.
VolumeLabels read_nifti_labels(const std::filesystem::path& path);

// Writes labels [D, H, W] onto the cells of `like`. If a function above has returned it, its spacing, qform, sform, units and
// description are kept, all else is new; of other formats spacing and affine become pixdim and sform. One volume, little-endian,
// uint8 if all labels are below 256, else int32; packed by gzip if the name ends in .gz. The file has a temporary name beside
// PATH and is renamed when it is complete; after an error there is nothing new at `path`. Errors, by name: the file exists and is
// not to be overwritten, cannot be made or is not complete (a full disk); .gz in a build without zlib; labels of another number
// than cells; a negative label, with its place.
void write_nifti_labels(const std::filesystem::path& path, std::span<const std::int32_t> labels, const VolumeHeader& like,
                        bool overwrite = false);

}  // namespace mpigrad::data
