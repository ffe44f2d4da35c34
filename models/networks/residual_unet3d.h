#pragma once
// U-Net with a residual encoder and with kernels and strides for each axis: nnU-Net's ResEnc network (Isensee et al. 2024, arXiv
// 2404.09556), a class for each voxel of a volume.

#include <memory>
#include <utility>
#include <vector>

#include "models/losses/deep_supervision.h"
#include "models/nn/sequential.h"

namespace mpigrad {

struct ResidualUNet3dOptions {
  // Filters of the levels, from the finest on; their number, at least 2, is the number of levels.
  std::vector<std::int64_t> filters{32, 64, 128, 256, 320, 320};
  // Stride with which each level begins; the finest one's is 1. None: 2 along every axis.
  std::vector<Triple> strides{};
  std::vector<Triple> kernels{};       // of each level, odd; none: 3
  std::vector<std::int64_t> blocks{};  // residual blocks of each level; none: 1, 3, 4, 6, 6, ...
  std::int64_t classes = 3;
  StatisticsOver statistics = StatisticsOver::spatial_group;  // of the instance norms, or local
  PaddingMode padding_mode = PaddingMode::zeros;              // of the convolutions
  bool deep_supervision = true;                               // scores of coarse levels in training
  // Keeps only the input and the result of each residual block and recomputes the block in the replay.
  bool recompute = false;
};

// [N, D, H, W, C] -> scores [N, D, H, W, classes], for any extents of at least 1, split like the volume at every level.
//
// A convolution with instance norm and LeakyReLU 0.01; then levels of residual blocks lrelu(x' +
// norm(conv(lrelu(norm(conv(x))))), where the level's first convolution has the stride, and x' is x, averaged over the stride's
// windows and passed through a convolution of kernel 1 with norm where the number of filters changes. On the way up: a transposed
// convolution whose kernel is its stride, the skip connection, one convolution with norm. The last norm of a block starts at 0.
// Convolutions before a norm have no bias, because the norm would remove it.
//
// Every level of the way up except the coarsest has scores; those of coarse levels exist in training only, for
// deep_supervision_loss(). 102,336,556 parameters with one channel, three classes and the options above.
class ResidualUNet3d : public nn::Module, public DeeplySupervised {
 public:
  explicit ResidualUNet3d(const ResidualUNet3dOptions& options = {});
  ~ResidualUNet3d() override;
  Tensor operator()(const Tensor& x) override;
  const ResidualUNet3dOptions& options() const { return o_; }  // complete: strides, kernels and blocks of every level
  std::vector<CoarseScores> take_coarse_scores() override { return std::exchange(coarse_, {}); }

 private:
  class Norm;
  class Block;
  class Up;
  ResidualUNet3dOptions o_;
  std::unique_ptr<nn::Conv3d> stem_;
  std::unique_ptr<Norm> stem_norm_;
  std::vector<std::vector<std::unique_ptr<Block>>> downs_;  // by level
  std::vector<std::unique_ptr<Up>> ups_;
  nn::List<nn::Conv3d> heads_;  // from the finest level on
  std::vector<CoarseScores> coarse_;
};

}  // namespace mpigrad
