#pragma once
// Discrete Fourier transforms (ops/fft/fft.h) of plain and distributed tensors. A transformed dimension that is split is
// redistributed: with the other dimensions whole, slabs need one redistribution and pencils two. Its parts of rank r are a_r (N_b
// - b_r) times the other local extents, where a_r and b_r are the extents of the rank's blocks of the dimension that was split
// and of the one that is split then, and N_b is the extent of the latter: n (P - 1) / P elements of n, if the P ranks divide
// both.

#include <cstdint>
#include <vector>

#include "comm/distributed/redistribute.h"
#include "ops/fft/fft.h"

namespace mpigrad {

// fft, rfft and irfft as in namespace local, `axes` whole or split. The result has the layout that the last redistribution made
// (the transform stays "transposed"), with balanced cuts, or `layout`, which may cost one more. ifft(fft(x)) and irfft(rfft(x))
// on slabs of the first and pencils of the first two of three axes end with the dimensions of x split. All ranks' results have
// the bits of a plain tensor's. Errors: those of the local functions; grids that leave no dimension to split instead, as those of
// three axes: the message names the redistribution to pencils; partial sums along with a split dimension that is transformed.
Tensor fft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor ifft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor rfft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent, const LayoutPtr& layout = {});

}  // namespace mpigrad
