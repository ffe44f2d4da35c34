#pragma once
// One tensor in a file of NumPy's: numpy.save() and numpy.load().

#include <filesystem>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Writes a new .npy file, version 1.0 of the format (numpy.lib.format), row-major, by the calling process only. Nothing is
// recorded. The file appears under its name when it is complete; after an error nothing of it remains. Errors: the file exists
// and is not to be overwritten, or cannot be made; bfloat16, which NumPy does not have; a tensor of which this rank holds a part
// (write_hdf5() writes distributed tensors); no elements, as of the dry device.
void write_npy(const std::filesystem::path& path, const Tensor& x, bool overwrite = false);

// Reads a .npy file, versions 1 to 3, or one packed by gzip, on the current device. Types that tensors do not have become the
// smallest that holds all their values: int8 as int16, uint32 and uint64 as int64, big-endian numbers as the machine's. Errors,
// with the file: missing, not .npy, truncated, longer than it says, Fortran order of two or more dimensions, elements that are no
// numbers, uint64 beyond 2^63 - 1.
Tensor read_npy(const std::filesystem::path& path);

}  // namespace mpigrad
