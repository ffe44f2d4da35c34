#pragma once
// Tensors as NumPy's files.

#include <filesystem>

#include "framework/tensor/tensor.h"

namespace mpigrad::contrast {

// Version 1.0 of the format (numpy.lib.format), row-major: float32, float64 or int64 in CPU memory. Errors: another type, a file
// that cannot be written; then there is nothing under its name.
void write_npy(const std::filesystem::path& path, const Tensor& x);

}  // namespace mpigrad::contrast
