#pragma once
// A small network for classes or numbers of volumes and pictures: four convolutions with batch norm, of which the last three
// halve the resolution, a global mean, a linear layer.

#include <array>
#include <memory>

#include "models/nn/layers.h"

namespace mpigrad {

struct ClassifierOptions {
  std::int64_t outputs = 2;   // classes, or numbers to predict
  std::int64_t filters = 16;  // in the first convolution; each further one has twice as many
  bool pool_first = true;     // first average 2^3 voxels (2^2 pixels of pictures)
  double keep = 0.8;          // dropout before the last layer
  nn::BatchNormAttributes norm{};
};

// [N, D, H, W, C] -> logits or numbers [N, outputs]
class Classifier : public nn::Module {
 public:
  explicit Classifier(const ClassifierOptions& options = {});
  Tensor operator()(const Tensor& x) override;

 private:
  ClassifierOptions o_;
  std::array<std::unique_ptr<nn::Conv3d>, 4> convs_;
  std::array<std::unique_ptr<nn::BatchNorm>, 4> norms_;
  nn::Dropout dropout_{*this, "dropout", {.keep = o_.keep}};
  nn::Linear linear_{*this, "linear", {.out = o_.outputs, .whole = true}};
};

}  // namespace mpigrad
