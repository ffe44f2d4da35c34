#pragma once
// Discrete Fourier transforms (ops/fft/fft.h) of plain and distributed tensors. A transformed dimension that is split is
// redistributed. If all other dimensions are whole, slabs (one split dimension) need one redistribution and pencils (two) need
// two. In a redistribution, dimension a is split before and dimension b afterwards. Rank r has a block of extent a_r of a, and
// gets a block of extent b_r of b, which has N_b elements in all. It sends a_r (N_b - b_r) elements times its other local
// extents. If the P ranks divide both extents, this is n (P - 1) / P of the rank's n elements.

#include <cstdint>
#include <vector>

#include "comm/distributed/redistribute.h"
#include "ops/fft/fft.h"

namespace mpigrad {

// fft, rfft and irfft as in namespace local, `axes` whole or split. The result keeps the layout of the last redistribution, with
// balanced cuts (the transform stays "transposed"). If `layout` is given, the result has that layout, which may cost one more
// redistribution. Let x have three axes and be split along the first (slabs) or the first two (pencils). Then the results of
// ifft(fft(x)) and irfft(rfft(x)) are split along the same dimensions as x. The elements are bit for bit those that a plain
// tensor would give. Errors: those of the local functions; all dimensions of x are split, for example a 3D field over three
// grid axes, so that there is no other dimension to split in place of a transformed one (the message says how to redistribute to
// pencils); a partial sum of which a transformed dimension is split.
Tensor fft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor ifft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor rfft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent, const LayoutPtr& layout = {});

}  // namespace mpigrad
