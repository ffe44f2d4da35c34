#pragma once
// NumPy's .npz archives: one .npy file for each tensor, by its name.

#include "examples/tools/weights/safetensors.h"

namespace mpigrad::weights {

// Numbers of 16 bits come as float32, others as they are. Errors: no archive; an array of another type; a file in it that is no
// .npy file.
TensorFile read_npz(const std::filesystem::path& path);
// As float32 where they have 16 bits; without metadata. Errors: a file that is there already; cannot be written.
void write_npz(const std::filesystem::path& path, const TensorFile& file, bool overwrite);

}  // namespace mpigrad::weights
