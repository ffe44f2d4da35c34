#pragma once
// Spectral convolutions, the layers of Fourier neural operators (Z. Li et al., "Fourier neural operator for parametric partial
// differential equations", ICLR 2021): a product for each frequency that is kept, between two Fourier transforms.

#include "models/nn/module.h"
#include "ops/extents.h"

namespace mpigrad {

// y = irfft(R rfft(x)) + bias over the dimensions D, H, W of x: [N, D, H, W, C], real -> [N, D, H, W, out]. At every kept
// frequency k, R is a complex matrix: channel o of the product is the sum over c of x(k, c) R(k, c, o). Other frequencies are 0.
//
//   w     [modes_d, modes_h, modes_w, C, out, 2], real and imaginary parts, of the type of x (float32 if x has 16 bits). Of n
//         frequencies along D and H, w has 0, 1, ..., (n + 1) / 2 - 1 and then -(n / 2), ..., -1. Along W it has 0, 1, ..., n -
//         1: those below 0 follow, as x is real. All are integers, in periods of the box.
//   bias  [out] or none
//
// x may be split in any way that leaves one dimension whole. A split dimension becomes whole before its transform: its grid axis
// then splits another one, if possible one whose frequencies have been cut already, so that only kept frequencies travel. With D
// split over P ranks, a rank sends about N C (D / P) modes_h modes_w (P - 1) / P complex numbers, and as many, with `out` in
// place of C, on the way back; the replay sends the same. Each rank multiplies some of the frequencies and uses only their part
// of w.
//
// The result is split as x is. It equals that of one rank to rounding; gradients do, too. Errors: shapes that do not fit; more
// modes than an extent of D or H, or than W / 2 + 1; a partial sum; no dimension is whole.
Tensor spectral_conv(const Tensor& x, const Tensor& w, const Tensor& bias = {});

namespace nn {

struct SpectralConv3dAttributes {
  std::int64_t out = 0;
  // The numbers of frequencies that are kept along D, H and W, as in spectral_conv(); 1 for a dimension of extent 1. Along D and
  // H both signs count: twice the number of Li et al. In neuraloperator's n_modes = (a, b, c): a, b and c / 2 + 1.
  Triple modes = 1;
  bool bias = true;
};
// [N, D, H, W, C] -> [N, D, H, W, out]: spectral_conv() with the parameters weight and bias. Real and imaginary parts of the
// weight start normal with variance 1 / (C + out), the bias with variance 2 / (C + out), as in neuraloperator 2.0. Any extents
// that have the modes may follow build().
//
// If the input that build() sees is split, each rank stores only the part of the weight that its frequencies use, with its
// gradient and the optimizer's state; nothing is reduced along these axes of the grid. In mixed precision the layer computes in
// float32.
class SpectralConv3d : public Module {
 public:
  using Attributes = SpectralConv3dAttributes;
  SpectralConv3d(Module& parent, const std::string& name, const SpectralConv3dAttributes& attributes);
  Tensor operator()(const Tensor& x) override;
  const Attributes& attributes() const { return a_; }

 private:
  Attributes a_;
};

struct SpectralConv2dAttributes {
  std::int64_t out = 0;
  Pair modes = 1;  // along H and W
  bool bias = true;
};
// [N, H, W, C] -> [N, H, W, out]: a SpectralConv3d of one plane.
class SpectralConv2d : public SpectralConv3d {
 public:
  using Attributes = SpectralConv2dAttributes;
  SpectralConv2d(Module& parent, const std::string& name, const SpectralConv2dAttributes& attributes);
  Tensor operator()(const Tensor& x) override;
};

struct SpectralConv1dAttributes {
  std::int64_t out = 0;
  std::int64_t modes = 1;  // along W
  bool bias = true;
};
// [N, W, C] -> [N, W, out]: a SpectralConv3d of one line.
class SpectralConv1d : public SpectralConv3d {
 public:
  using Attributes = SpectralConv1dAttributes;
  SpectralConv1d(Module& parent, const std::string& name, const SpectralConv1dAttributes& attributes);
  Tensor operator()(const Tensor& x) override;
};

}  // namespace nn
}  // namespace mpigrad
