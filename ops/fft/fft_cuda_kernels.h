#pragma once
// What a transform on a GPU multiplies besides cuFFT's sums.

#include <cstdint>

#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// Lines of `half` = n / 2 + 1 complex numbers, one after the other: multiplies the numbers 0 < k < n / 2 by `between`; with
// `clear`, sets the imaginary parts of k = 0 and, for even n, of k = n / 2 to 0.
template <class T>
void weight_half_lines(std::int64_t lines, std::int64_t n, T between, bool clear, T* z, Stream stream);
template <class T>
void scale_numbers(std::int64_t count, T factor, T* x, Stream stream);

}  // namespace mpigrad::cuda
