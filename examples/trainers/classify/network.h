#pragma once
// A small network for classes or numbers of volumes: four convolutions with batch norm, of which the last three halve the
// resolution, a global mean, a linear layer.

#include <array>
#include <memory>
#include <string>

#include "models/nn/layers.h"

namespace mpigrad::classify {

struct NetworkOptions {
  std::int64_t outputs = 2;   // classes, or numbers to predict
  std::int64_t filters = 16;  // in the first convolution; each further one has twice as many
  bool pool_first = true;     // first average 2^3 voxels (2^2 pixels of pictures)
  double keep = 0.8;          // dropout before the last layer
  nn::BatchNormAttributes norm{};
};

// [N, D, H, W, C] -> logits or numbers [N, outputs]
class Network : public nn::Module {
 public:
  explicit Network(const NetworkOptions& options) : o_(options) {
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      convs_[i] = std::make_unique<nn::Conv3d>(
          *this, fmt::format("conv{}", i + 1),
          nn::Conv3dAttributes{.out = o_.filters << i, .kernel = 3, .stride = i == 0 ? 1 : 2, .padding = 1, .bias = false});
      auto norm = o_.norm;
      norm.activation = Activation::relu;
      norms_[i] = std::make_unique<nn::BatchNorm>(*this, fmt::format("norm{}", i + 1), norm);
    }
  }

  Tensor operator()(const Tensor& input) override {
    Tensor x = input;
    if (o_.pool_first) {
      nn::LayerScope scope("pool", "avg_pool");
      const bool picture = (x.layout() ? x.layout()->global[1] : x.dim(1)) == 1;
      const Triple two = picture ? Triple{1, 2, 2} : Triple(2);
      x = scope.done(avg_pool(x, {.kernel = two, .stride = two}));
    }
    for (std::size_t i = 0; i < convs_.size(); ++i) x = (*norms_[i])((*convs_[i])(x));
    return linear_(dropout_(global_avg_pool(x)));
  }

 private:
  NetworkOptions o_;
  std::array<std::unique_ptr<nn::Conv3d>, 4> convs_;
  std::array<std::unique_ptr<nn::BatchNorm>, 4> norms_;
  nn::Dropout dropout_{*this, "dropout", {.keep = o_.keep}};
  nn::Linear linear_{*this, "linear", {.out = o_.outputs, .whole = true}};
};

}  // namespace mpigrad::classify
