#pragma once
// Cosine and sine transforms of plain and distributed tensors: those of type II, without normalisation, as scipy.fft.dct and
// FFTW's REDFT10 and RODFT10 have them, and their inverses. Along a dimension of N elements:
//
//   dct   C(k) = 2 sum over n of x(n) cos(pi k (2 n + 1) / (2 N)),         k = 0 ... N - 1
//   dst   S(k) = 2 sum over n of x(n) sin(pi (k + 1) (2 n + 1) / (2 N)),   k = 0 ... N - 1
//
// They are Fourier transforms of the 2 N elements x and, for dct, the mirrored x, for dst, minus the mirrored x. So the wall of a
// field that is even or odd there lies half a spacing outside of its first and last points.

#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// `axes` whole or split, float32 or float64; several axes one after the other. Layouts, bits and errors are those of fft()
// (comm/fft/fft.h). Compositions of ops: derivatives of any order.
Tensor dct(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor idct(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor dst(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});
Tensor idst(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout = {});

namespace local {

struct HalfWaves {
  bool odd = false;      // sines
  bool inverse = false;  // idct, idst
};
// One of these transforms along dimension d of a plain tensor; of a complex one for real and imaginary part.
Tensor half_waves(const Tensor& x, int d, const HalfWaves& kind);

}  // namespace local
}  // namespace mpigrad
