#pragma once
// One-dimensional transforms of a batch of lines by cuFFT.

#include <cstdint>

#include "ops/fft/lines.h"

namespace mpigrad::cuda {

// `lines` lines of n numbers (real ones, of real transforms), one after the other, on this thread's GPU and its compute stream.
// half_to_real overwrites its input. `in` may be `out` if the kind is forward or backward.
template <class T>
void transform_lines(ops::Lines kind, std::int64_t n, std::int64_t lines, T* in, T* out);

}  // namespace mpigrad::cuda
