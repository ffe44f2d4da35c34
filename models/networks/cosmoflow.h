#pragma once
// CosmoFlow: cosmological parameters from a volume of matter, in two published variants.

#include "models/nn/sequential.h"

namespace mpigrad {

enum class CosmoFlowVariant : std::uint8_t {
  hybrid,  // Oyama et al. 2020, arXiv 2007.12856: seven convolutions, average pooling; 9,437,636 parameters at every extent
  mlperf,  // MLPerf HPC: five convolutions with bias, max pooling, 1.2 tanh; 8,907,556 parameters at 128^3
};

struct CosmoFlowOptions {
  CosmoFlowVariant variant = CosmoFlowVariant::hybrid;
  bool batch_norm = false;  // of hybrid
  nn::BatchNormAttributes norm{};
  double keep = -1;                 // dropout; negative: the variant's (0.8, 0.5)
  std::int64_t filters = 0;         // of the first convolution, the others in proportion; 0: the variant's (16, 32)
  std::int64_t targets = 4;
};

// [N, W, W, W, C] -> [N, targets], W a power of two from 16 (hybrid) or 32 (mlperf).
class CosmoFlow : public nn::Module {
 public:
  explicit CosmoFlow(const CosmoFlowOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  const CosmoFlowOptions& options() const { return o_; }  // with the number of filters that it has

 private:
  Tensor block(const Tensor& x, std::size_t i);
  CosmoFlowOptions o_;
  nn::List<nn::Conv3d> convs_;
  nn::List<nn::BatchNorm> norms_;
  nn::List<nn::Linear> linears_;
  nn::List<nn::Dropout> dropouts_;
};

}  // namespace mpigrad
