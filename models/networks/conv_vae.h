#pragma once
// A convolutional variational autoencoder of maps, such as contact maps of proteins.

#include <memory>
#include <vector>

#include "models/nn/sequential.h"

namespace mpigrad {

struct ConvVaeOptions {
  std::int64_t rows = 22, columns = 22;                             // of a map
  std::vector<std::int64_t> filters{64, 64, 64}, strides{1, 2, 1};  // of the encoder's convolutions
  std::int64_t kernel = 3;                                          // odd
  std::int64_t hidden = 128, latent = 3;
};

// The three parts of a result of ConvVae, [N, rows * columns], [N, latent] and [N, latent].
struct VaeParts {
  Tensor logits, mean, log_variance;
};
VaeParts vae_parts(const Tensor& result, std::int64_t latent);

// [N, 1, rows, columns, 1] -> [N, rows * columns + 2 latent]: for each sample the logits of the reconstructed map, then means and
// logarithms of variances of its latent variables.
//
// Method: Bhowmik, Gao, Young and Ramanathan 2018, "Deep clustering of protein folding simulations". Sizes: the public code
// yngtodd/molecules. Convolutions with ReLU, padded as TensorFlow's "same"; a hidden layer with ReLU; means and logarithms of
// variances; the mirror image of all this with transposed convolutions, the last of which gives the logits. With the defaults
// 2,140,551 parameters. In training the decoder reads mean + exp(log_variance / 2) e, where e is standard normal and depends on
// seed, step and the number of the sample in the batch, not on the ranks; in evaluation it reads the mean. As seed and step
// decide, a step in which it trains cannot be captured as a GPU graph.
class ConvVae : public nn::Module {
 public:
  explicit ConvVae(const ConvVaeOptions& options = {});
  Tensor operator()(const Tensor& maps) override;

 private:
  Tensor decode(const Tensor& latent, const LayoutPtr& cells);
  std::int64_t features() const;  // elements of a map after the last convolution
  ConvVaeOptions o_;
  std::vector<Extent3> extents_{};  // of the maps, and after each convolution
  nn::List<nn::Conv3d> down_;
  nn::List<nn::ConvTranspose3d> up_;
  std::unique_ptr<nn::Linear> hidden_, mean_, log_variance_, from_latent_, spread_;
};

}  // namespace mpigrad
