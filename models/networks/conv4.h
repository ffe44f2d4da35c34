#pragma once
// A small encoder for tiny images, such as 28 x 28 or 32 x 32: the "Conv-4" of few-shot learning.

#include "models/networks/residual.h"

namespace mpigrad {

struct Conv4Options {
  std::int64_t width = 64;  // channels of every block; 64 in the papers
  int blocks = 4;
  double growth = 1;     // ratio of the channels of a block to those of the previous one
  bool average = false;  // mean over the remaining image, else all its values as features
  nn::BatchNormAttributes norm{};
};

// [N, 1, H, W, C] -> [N, features]: `blocks` times 3x3 convolution, batch norm, ReLU, 2x2 maxima (Vinyals et al. 2016; Snell et
// al. 2017). 28 x 28 leaves 1 x 1, 64 features at width 64; 32 x 32 leaves 2 x 2, 256 features. An extent of 1 is not pooled.
class Conv4 : public nn::Module {
 public:
  explicit Conv4(const Conv4Options& options = {});
  Conv4(nn::Module& parent, const std::string& name, const Conv4Options& options = {});
  Tensor operator()(const Tensor& x) override;

 private:
  void make();
  Conv4Options o_;
  nn::List<nn::ConvNorm> blocks_;
};

}  // namespace mpigrad
