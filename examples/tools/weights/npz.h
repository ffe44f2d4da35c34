#pragma once
// NumPy's .npz archives: one .npy file for each tensor, with its name.

#include "examples/tools/weights/safetensors.h"

namespace mpigrad::weights {

// Reads an archive. 16-bit floating-point numbers become float32, other types stay. Errors: not an archive; an array of another
// type; a file in it that is not a .npy file.
TensorFile read_npz(const std::filesystem::path& path);
// Writes an archive without metadata; 16-bit floating-point numbers become float32. Errors: the file exists and `overwrite` is
// false; it cannot be written.
void write_npz(const std::filesystem::path& path, const TensorFile& file, bool overwrite);

}  // namespace mpigrad::weights
