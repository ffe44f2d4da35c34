#pragma once
// Arrays in numpy's .npy format, versions 1 to 3.

#include <filesystem>

#include "framework/tensor/tensor.h"

namespace mpigrad::testing {

// Little-endian, C-ordered arrays of the engine's own types (float32, float64, int64, int32, int16, uint8, boolean).
// Anything else, and a file that is shorter or longer than its header says, is an error that names the file.
Tensor read_npy(const std::filesystem::path& file);

}  // namespace mpigrad::testing
