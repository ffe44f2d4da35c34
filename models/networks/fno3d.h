#pragma once
// Fourier neural operators: networks that map fields to fields and are not bound to one resolution.

#include <array>

#include "models/nn/sequential.h"
#include "models/nn/spectral/spectral_conv.h"

namespace mpigrad {

struct FNO3dOptions {
  // The numbers of frequencies that are kept along D, H and W, 1 for a dimension of extent 1 (nn::SpectralConv3dAttributes).
  Triple modes = {1, 16, 9};
  std::int64_t width = 64;  // channels of the layers
  std::int64_t layers = 4;
  std::int64_t out = 1;  // channels of the result
  // Hidden channels of the first and of the last two products, in units of `width`. lifting 0: one product without a hidden
  // layer.
  double lifting = 2, projection = 2;
  // Hidden channels of the two products after each spectral convolution, in units of `width`; 0: none, as in Li et al. 2021.
  double channel_mlp = 0.5;
  // Appends the coordinates i / n of dimensions of extents n > 1 to the input's channels.
  bool coordinates = true;
  Activation activation = Activation::gelu;
};

// [N, D, H, W, C] -> [N, D, H, W, out]; one- and two-dimensional problems have D = 1, or D = H = 1. (Z. Li et al., "Fourier
// neural operator for parametric partial differential equations", ICLR 2021, arXiv 2010.08895.) Structure and defaults are those
// of the class FNO of the Python library neuraloperator 2.0 (J. Kossaifi et al., 2025), whose arguments are in brackets:
//
//   x, coordinates -> two products of channels [lifting] -> the layers -> two products of channels [projection]
//   layer:  z = activation(spectral_conv(x) + W x)                              [fno_skip = "linear"]
//           y = activation(two products of channels of z + g x), g per channel  [channel_mlp, "soft-gating"]
//
// The last layer has no activations of z and y. Products of channels are convolutions with a kernel of 1; those of lifting,
// projection and the channel MLP have a bias and the activation in between. g starts at 1; initial weights and biases have the
// distributions of neuraloperator, too.
//
// The fields may be split in any way that spectral_conv() takes. A network that was built for some extents takes other extents,
// too, if they have the modes.
class FNO3d : public nn::Module {
 public:
  explicit FNO3d(const FNO3dOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  const FNO3dOptions& options() const { return o_; }

 private:
  // g x, with a parameter g for each channel.
  class Gate : public nn::Module {
   public:
    Gate(Module& parent, const std::string& name) : Module(parent, name) {}
    Tensor operator()(const Tensor& x) override;
  };
  Tensor with_coordinates(const Tensor& x);
  const Tensor& coordinate(const Tensor& x, int d);

  FNO3dOptions o_;
  nn::List<nn::Conv3d> lifting_, skips_, mlps_, projection_;
  nn::List<nn::SpectralConv3d> spectral_;
  nn::List<Gate> gates_;
  // Of the last input, along D, H and W; the extent, and the first place of this rank.
  struct Coordinate {
    std::int64_t n = 0, begin = 0;
    Tensor line{};
  };
  std::array<Coordinate, 3> coordinates_{};
};

}  // namespace mpigrad
