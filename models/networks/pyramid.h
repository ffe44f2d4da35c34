#pragma once
// Statistics of a periodic field at several scales, as features of a network.

#include "models/nn/layers.h"

namespace mpigrad {

// Input: log(1 + counts) in the cells of a periodic box at C redshifts, with one particle in a cell on average. [N, W, W, W, C]
// -> [N, C F L], L = log2(W) - 1 scales.
//
// At each scale: one convolution 3^3 of F filters, LeakyReLU 0.01 and the mean over all places, of the contrast counts - 1 and of
// log(1 + counts). The filters are the same at all redshifts, so that a difference between two redshifts is growth and not the
// sample of the initial field. From scale to scale the field is halved by means with the weights (1, 2, 2, 1) / 6 along each
// axis; means of 2 would let small scales into the large ones (Zhang 2019, "Making convolutional networks shift-invariant
// again"). Opposite faces are neighbours everywhere. The weights are whole on all ranks and in float32 or float64, because
// differences of counts are small.
class Pyramid : public nn::Module {
 public:
  Pyramid(nn::Module& parent, const std::string& name, std::int64_t filters) : Module(parent, name), filters_(filters) {}
  Tensor operator()(const Tensor& x) override;

 private:
  std::int64_t filters_;
};

}  // namespace mpigrad
