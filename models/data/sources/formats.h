#pragma once
// Readers of the formats, each into memory. All files may be packed by gzip. Errors name the file and say what is wrong: another
// format, truncated, longer than it claims, types that are not supported.

#include <filesystem>

#include "models/data/sources/bytes.h"
#include "models/data/sources/memory.h"

namespace mpigrad::data {

// An array in any number of dimensions, row-major.
struct NumberArray {
  Shape shape;
  DType type = DType::uint8;
  Bytes values;
};

// MNIST's IDX: bytes 0, 0, type, rank; the extents, big-endian; the elements.
// http://yann.lecun.com/exdb/mnist: type 8 is uint8, 9 int8, B int16, C int32, D float32, E float64
NumberArray read_idx(const std::filesystem::path& path);

// NumPy's .npy, versions 1 to 3 (numpy.lib.format): numbers in either byte order, C order.
NumberArray read_npy_array(const std::filesystem::path& path);
NumberArray parse_npy(ByteStream& stream, const std::string& name);
// The header before the elements.
struct NpyHeader {
  Shape shape;
  StoredType type;
  std::size_t bytes = 0;  // length of the header
  bool complex = false;   // the shape has one more dimension, of extent 2: real and imaginary parts
};
NpyHeader parse_npy_header(ByteStream& stream, const std::string& name, bool takes_complex = false);
NumberArray parse_npy_elements(ByteStream& stream, const NpyHeader& header, const std::string& name);

// The header of a .npy file, version 1.0, row-major. Error: bfloat16, which NumPy does not have.
std::string npy_header(const Shape& shape, DType type);

// The arrays of an .npz archive, by name without ".npy".
struct NamedArray {
  std::string name;
  NumberArray array;
};
std::vector<NamedArray> read_npz(const std::filesystem::path& path, const std::string& prefix = "");

// An array of samples: [n, H, W], [n, H, W, C] with at most 4 channels, [n, D, H, W] with more than 4 columns, [n, D, H, W, C].
Samples samples_of(NumberArray array, const std::filesystem::path& file);

// CIFAR's binary version (Krizhevsky 2009), all files one after the other: records of 1 label (CIFAR-10) or of 2, coarse and fine
// (CIFAR-100), and 3 x 32 x 32 bytes, planes of red, green and blue. The files' lengths tell the two versions apart.
struct CifarFiles {
  Samples samples;
  std::vector<Labels> labels;
};
CifarFiles read_cifar(const std::vector<std::filesystem::path>& paths);

// NIfTI-1 or NIfTI-2 in one file (.nii): [z, y, x] or [z, y, x, C] with C the fourth dimension, as float32: slope and intercept
// applied, then scaled from its own least and greatest finite value to [0, 1] (a constant volume becomes 0). Header: nifti1.h of
// the NIfTI data format working group. Callers use it through its row in models/data/volumes/volume_formats.h.
augment::Sample read_nifti(const std::filesystem::path& path);

}  // namespace mpigrad::data
