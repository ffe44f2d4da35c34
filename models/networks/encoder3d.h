#pragma once
// A residual encoder for volumes of about 16^3 to 512^3, cubes or not.

#include <memory>

#include "models/networks/residual.h"

namespace mpigrad {

struct Encoder3dOptions {
  std::int64_t width = 16;              // channels of the stem and the first stage; each stage has twice those of the previous
                                        // one
  std::vector<int> blocks{1, 1, 1, 1};  // of each stage
  bool bottleneck = false;
  Triple kernel = 3;
  bool zero_start = false;  // see nn::ResidualAttributes
  nn::BatchNormAttributes norm{};
};

// [N, D, H, W, C] -> [N, features()], means over the volume, the same on all ranks that share the samples. The stem has stride 2
// for extents from 64, followed by pooling by 2 from 128; then residual stages, all except the first with stride 2. An axis is
// not strided where its extent is at most half of the longest, or at most 2: slabs become cubes. Strides depend only on the
// global extents, and parameters do not depend on the extents.
class Encoder3d : public nn::Module {
 public:
  explicit Encoder3d(const Encoder3dOptions& options = {});
  Encoder3d(nn::Module& parent, const std::string& name, const Encoder3dOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  std::int64_t features() const;

 private:
  void make();
  Encoder3dOptions o_;
  std::unique_ptr<nn::ConvNorm> stem_;
  std::vector<std::vector<std::unique_ptr<nn::ResidualBlock>>> stages_;
};

}  // namespace mpigrad
