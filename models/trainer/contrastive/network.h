#pragma once
// Encoder, projection head and the other learned parameters of the loss; checkpoints describe them by a line of text.

#include <memory>

#include "models/networks/projection.h"
#include "models/nn/layers.h"
#include "models/trainer/contrastive/options.h"

namespace mpigrad::contrast {

// All settings of a network, so that a file's weights can be used without the options of its training.
struct NetworkConfig {
  NetworkOptions options{};
  std::string loss = "nt-xent", dtype = "float32", precision, augment;
  Shape extents{1, 1, 1};  // of the views
  std::int64_t channels = 1;

  std::string text() const;                             // one line of JSON
  static NetworkConfig parse(const std::string& text);  // Error: a text that text() did not write
  Shape input(std::int64_t n) const { return {n, extents[0], extents[1], extents[2], channels}; }
};

class Network : public nn::Module {
 public:
  Network(const NetworkConfig& config, const nn::BatchNormAttributes& norm);
  // [N, D, H, W, C] -> [N, features]
  Tensor features(const Tensor& x) { return (*encoder_)(x); }
  // [N, features] -> [N, width of the head], of the network's dtype
  Tensor project(const Tensor& features);
  Tensor operator()(const Tensor& x) override;

  // Parameters of swav and dino, of clip and siglip.
  Tensor prototypes(const Tensor& z) { return (*prototypes_)(z); }
  Tensor scale() { return scale_->value(); }
  Tensor bias() { return bias_->value(); }

 private:
  std::unique_ptr<nn::Module> encoder_;
  std::unique_ptr<ProjectionHead> head_;
  std::unique_ptr<Prototypes> prototypes_;
  std::unique_ptr<LearnedNumber> scale_, bias_;
};

}  // namespace mpigrad::contrast
