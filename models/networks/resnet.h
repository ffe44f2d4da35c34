#pragma once
// ResNets for images (He et al. 2015; bottlenecks "v1.5": the stride is on the 3x3 convolution).

#include <memory>

#include "models/networks/residual.h"

namespace mpigrad {

struct ResNetOptions {
  int depth = 50;                  // 10, 18, 34 (basic blocks), 50, 101, 152 (bottlenecks)
  std::int64_t classes = 0;        // 0: no classifier, the result is the features
  std::int64_t width = 64;         // channels of the stem; stages have 1, 2, 4, 8 times as many, bottlenecks four times those
  bool small_images = false;       // 3x3 stem with stride 1 and no pooling, as for CIFAR; else 7x7 with stride 2, then 3x3 maxima
  bool zero_start = false;         // see nn::ResidualAttributes
  nn::BatchNormAttributes norm{};  // statistics: the ranks over which they are computed
};

// [N, 1, H, W, C] -> [N, features()], or [N, classes]; the same on all ranks that share the samples. With three channels and 1000
// classes ResNet-18 has 11,689,512 parameters, ResNet-50 25,557,032.
class ResNet : public nn::Module {
 public:
  explicit ResNet(const ResNetOptions& options = {});
  ResNet(nn::Module& parent, const std::string& name, const ResNetOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  std::int64_t features() const;  // 512 for ResNet-18, 2048 for ResNet-50

 private:
  void make();
  ResNetOptions o_;
  bool bottleneck_ = false;
  std::unique_ptr<nn::ConvNorm> stem_;
  std::vector<std::vector<std::unique_ptr<nn::ResidualBlock>>> stages_;
  std::unique_ptr<nn::Linear> classifier_;
};

}  // namespace mpigrad
