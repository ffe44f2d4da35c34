#include "models/networks/classifier.h"

namespace mpigrad {

Classifier::Classifier(const ClassifierOptions& options) : o_(options) {
  require(o_.filters >= 1 && o_.filters <= 4096, "[classifier] filters are from 1 to 4096, got {}", o_.filters);
  for (std::size_t i = 0; i < convs_.size(); ++i) {
    convs_[i] = std::make_unique<nn::Conv3d>(
        *this, fmt::format("conv{}", i + 1),
        nn::Conv3dAttributes{.out = o_.filters << i, .kernel = 3, .stride = i == 0 ? 1 : 2, .padding = 1, .bias = false});
    auto norm = o_.norm;
    norm.activation = Activation::relu;
    norms_[i] = std::make_unique<nn::BatchNorm>(*this, fmt::format("norm{}", i + 1), norm);
  }
}

Tensor Classifier::operator()(const Tensor& input) {
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

}  // namespace mpigrad
