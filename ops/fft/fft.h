#ifndef MPIGRAD_OPS_FFT_FFT_H
#define MPIGRAD_OPS_FFT_FFT_H
// Discrete Fourier transforms of whole dimensions. M is the product of the extents of `axes`:
//
//   fft    F(k) = sum over n of x(n) exp(-2 pi i k n / M)
//   ifft   its inverse, with the factor 1 / M
//   rfft   fft of a real x, of which the last of the axes keeps k = 0 ... floor(W / 2): the others are conjugates
//   irfft  its inverse. The parts of the input that no real x has are ignored, so that the function is real-linear. These are
//          the imaginary parts at k = 0 and, for even W, k = W / 2 of the last axis, after the other axes are transformed.
//
// Extents are arbitrary and at least 1. CPUs use FFTW: every one-dimensional problem is computed by the same plan from aligned
// memory with unit stride, so that its bits depend neither on threads nor on ranks. GPUs use cuFFT. float32, complex64, float64
// and complex128. The functions of comm/fft/fft.h also take tensors whose transformed dimensions are split.

#include <cstdint>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

// The frequencies of fft, in cycles per unit of `spacing`: [0, 1, ..., -2, -1] / (n spacing); the first negative one is at
// floor((n + 1) / 2). A constant [n] on the current device.
Tensor fftfreq(std::int64_t n, double spacing = 1, DType dtype = DType::float64);
// Those of rfft: [0, 1, ..., floor(n / 2)] / (n spacing).
Tensor rfftfreq(std::int64_t n, double spacing = 1, DType dtype = DType::float64);

namespace local {

// `axes` may be negative, and are transformed from the last to the first (ifft, irfft: from the first to the last). fft and ifft
// take real tensors, too. Errors: no axes, one named twice, one of extent 0, one that is split; other types; irfft: `extent`,
// that of the last axis of the result, is not one for which rfft gives the extent of y.
Tensor fft(const Tensor& x, const std::vector<int>& axes);
Tensor ifft(const Tensor& x, const std::vector<int>& axes);
Tensor rfft(const Tensor& x, const std::vector<int>& axes);
Tensor irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent);

}  // namespace local

namespace ops {

// The sums of a transform without 1 / M, along `axes` in this order. Each is the other's adjoint, with the axes reversed.
struct FourierSum {
  std::vector<int> axes;
  bool inverse = false;  // exp(+...)
  double scale = 1;
  bool scale_first = false;  // multiplies after the first axis instead of after the last: the bits of a sum in parts
  static constexpr OpTraits traits() { return {.name = "fft", .takes_complex = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const;
};

// R: real -> half of the complex numbers, along `axes` in this order, the first of which is halved; and C, back, the last of
// which is `extent` long: x(n) = sum over all k of y(k) exp(+...), where y(-k) = conj(y(k)). With `weighted`, R multiplies by 2
// and C by 1/2 where both k and -k are meant: between 0 and W / 2 of the halved axis. Adjoints: R and weighted C; C and weighted
// R.
struct RealFourierSum {
  std::vector<int> axes;
  double scale = 1;
  bool scale_first = false;
  bool weighted = false;
  static constexpr OpTraits traits() { return {.name = "rfft"}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct RealFourierInverse {
  std::vector<int> axes;
  std::int64_t extent = 1;
  double scale = 1;
  bool scale_first = false;
  bool weighted = false;
  static constexpr OpTraits traits() { return {.name = "irfft", .takes_complex = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
