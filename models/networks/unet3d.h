#pragma once
// 3D U-Net: a class for each voxel of a volume, in two published variants.

#include <optional>

#include "models/nn/sequential.h"

namespace mpigrad {

enum class UNet3dVariant : std::uint8_t {
  lbann,   // Oyama et al. 2020: max pooling, batch norm; 19,070,560 parameters with one channel and three classes
  mlperf,  // MLPerf Training: strided convolutions, instance norm; 31,190,243 parameters for the same input and classes
};

struct UNet3dOptions {
  UNet3dVariant variant = UNet3dVariant::mlperf;
  // Filters of the levels, from the finest on: lbann 32, 64, 128, 256, 512, where the first two belong to one level; mlperf 32,
  // 64, 128, 256, 320, 320. At least three numbers; their count determines the depth.
  std::vector<std::int64_t> filters{};
  std::optional<nn::NormAttributes> norm{};  // except its activation; none: the variant's
  std::int64_t classes = 3;
  PaddingMode padding_mode = PaddingMode::zeros;  // of the convolutions; circular for periodic boxes
  // Keeps only the input and the result of each block of two convolutions and recomputes the block in the replay.
  bool recompute = false;
};

// [N, D, H, W, C] -> scores [N, D, H, W, classes], for any extents of at least 1: where a level's extent is odd, the next finer
// level crops or pads the result of its transposed convolution. Every level is split like the volume; ranks may be left without
// planes.
class UNet3d : public nn::Module {
 public:
  explicit UNet3d(const UNet3dOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  const UNet3dOptions& options() const { return o_; }  // filters and norm as they were chosen
  int halvings() const { return static_cast<int>(ups_.size()); }

 private:
  struct Block {
    nn::List<nn::Conv3d> convs;
    std::vector<std::unique_ptr<nn::Module>> norms;
  };
  // Two convolutions with norm and ReLU; the first has `stride`.
  Block block(const std::string& name, std::int64_t first, std::int64_t second, const Triple& stride = 1);
  // `drops_input`: only the replay reads x again.
  Tensor run(Block& block, const Tensor& x, bool drops_input = false);

  UNet3dOptions o_;
  std::vector<Block> downs_, ups_;  // the last of downs_ is the bottom
  nn::List<nn::ConvTranspose3d> expansions_;
  std::unique_ptr<nn::Conv3d> head_;
};

}  // namespace mpigrad
