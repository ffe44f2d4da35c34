#pragma once
// NIfTI-1 and NIfTI-2 in one file (.nii, .nii.gz), of either byte order: reads geometry and real values, and writes labels on the
// cells of a file that was read. Headers: nifti1.h and nifti2.h of the NIfTI data format working group. read_nifti() in formats.h
// scales to [0, 1].
//
// Errors of all readers name the file: missing, truncated, longer than it claims, another format or one half of a pair of files,
// more than four dimensions, a volume that begins before byte 352, of NIfTI-2 544 (vox_offset; including 0), elements that are
// neither integers nor floating-point numbers (RGB, complex), not enough memory, a finite number that float32 cannot hold (with
// its place).

#include <cstdint>
#include <filesystem>
#include <span>

#include "models/data/volumes/volume.h"

namespace mpigrad::data {

constexpr std::string_view nifti_name = "NIfTI";

// x is the fastest axis in the file; channels, the fourth dimension, are the slowest. The spacing is 1 where the file has 0 or a
// number that is not finite; lengths are in the file's units (none: millimetres). `affine` is the file's sform, else its qform,
// else only the spacing, with t = 0 (a form is missing if its code is not positive or its numbers are not finite); `placed` is
// true if the file has one of the forms. `bytes` are the 348 or 540 bytes of the file's header, with little-endian numbers.
//
// Reads only the header; of a packed file no more is unpacked. Whether the file has all its elements is checked by the functions
// below.
VolumeHeader read_nifti_header(const std::filesystem::path& path);
VolumeValues read_nifti_volume(const std::filesystem::path& path);

// Reads a file of one channel whose values, stored as integers or floating-point numbers, are whole to within 0.001: programs
// that resample labels write such numbers. Labels may be negative; LabelRules says what those are. Errors in addition to those
// above: more than one channel; a value that is not within 0.001 of a whole number of up to 2^31 - 1, with its place.
VolumeLabels read_nifti_labels(const std::filesystem::path& path);

// Writes labels [D, H, W] on the cells of `like`. If one of the functions above returned `like`, its version, spacing, qform,
// sform, units and description are kept and everything else is new; for other formats spacing and affine become pixdim and sform
// of NIfTI-1. One volume, little-endian, uint8 if all labels are below 256, else int32; packed by gzip if the name ends in .gz.
// The file has a temporary name in the same folder and is renamed when it is complete; after an error nothing new is at `path`.
// Errors, by name: the file exists and `overwrite` is false, it cannot be created or completed (a full disk); .gz in a build
// without zlib; another number of labels than cells; a negative label, with its place.
void write_nifti_labels(const std::filesystem::path& path, std::span<const std::int32_t> labels, const VolumeHeader& like,
                        bool overwrite = false);

}  // namespace mpigrad::data
