#pragma once
// CosmoFlow: cosmological parameters from a volume of matter, in two published variants and one of our own.

#include "models/networks/pyramid.h"
#include "models/nn/running_norm.h"
#include "models/nn/sequential.h"

namespace mpigrad {

enum class CosmoFlowVariant : std::uint8_t {
  hybrid,  // Oyama et al. 2020, arXiv 2007.12856: seven convolutions, average pooling; 9,437,636 parameters at every extent
  mlperf,  // MLPerf HPC: five convolutions with bias, max pooling, 1.2 tanh; 8,907,556 parameters at 128^3
  // Statistics at several scales (models/networks/pyramid.h) and one linear layer, for simulations of periodic boxes; on log(1 +
  // counts) at four redshifts it has 5,060 parameters at 32^3.
  pyramid,
};

struct CosmoFlowOptions {
  CosmoFlowVariant variant = CosmoFlowVariant::hybrid;
  bool batch_norm = false;  // only for hybrid
  nn::BatchNormAttributes norm{};
  double keep = -1;          // dropout; negative: the variant's (hybrid 0.8, mlperf 0.5, pyramid 1)
  std::int64_t filters = 0;  // of the first convolution, the others in proportion; 0: the variant's (hybrid 16, mlperf 32,
                             // pyramid 16)
  std::int64_t targets = 4;
  // Of convolutions and average pools; circular for periodic boxes. The variant pyramid is always circular.
  PaddingMode padding_mode = PaddingMode::zeros;
};

// [N, W, W, W, C] -> [N, targets], W a power of two, at least 16, for mlperf at least 32.
class CosmoFlow : public nn::Module {
 public:
  explicit CosmoFlow(const CosmoFlowOptions& options = {});
  Tensor operator()(const Tensor& x) override;
  // The input of the last layer, [N, features]; for pyramid before `norm` normalises it.
  Tensor features(const Tensor& x);
  const CosmoFlowOptions& options() const { return o_; }  // with the actual number of filters

 private:
  Tensor block(const Tensor& x, std::size_t i);
  CosmoFlowOptions o_;
  nn::List<nn::Conv3d> convs_;
  nn::List<nn::BatchNorm> norms_;
  nn::List<nn::Linear> linears_;
  nn::List<nn::Dropout> dropouts_;
  std::optional<Pyramid> pyramid_;
  std::optional<nn::RunningNorm> norm_;
};

}  // namespace mpigrad
