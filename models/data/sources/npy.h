#pragma once
// One tensor in a NumPy file: numpy.save() and numpy.load().

#include <filesystem>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Writes a new .npy file, version 1.0 of the format (numpy.lib.format), row-major, by the calling process only. Not recorded on
// tapes. The file gets its name when it is complete; after an error no part of it remains. Errors: the file exists and
// `overwrite` is false, or it cannot be created; bfloat16, which NumPy does not have; a tensor of which this rank holds only a
// block (write_hdf5() writes distributed tensors); a tensor without elements in memory, as on the dry device.
void write_npy(const std::filesystem::path& path, const Tensor& x, bool overwrite = false);

// Reads a .npy file, versions 1 to 3, possibly packed by gzip, onto the current device. Types that tensors do not have become the
// smallest type that holds all their values: int8 becomes int16, uint32 and uint64 become int64; big-endian numbers get the
// machine's byte order. Errors, with the file: missing, not .npy, truncated, longer than it claims, Fortran order with two or
// more dimensions, elements that are not numbers, uint64 beyond 2^63 - 1.
Tensor read_npy(const std::filesystem::path& path);

}  // namespace mpigrad
