#pragma once
// Modules between an encoder's features and a contrastive loss: projection heads, prototypes, a learned scale.

#include <memory>

#include "models/nn/sequential.h"

namespace mpigrad {

struct ProjectionOptions {
  int layers = 2;  // 1 to 3
  std::int64_t hidden = 2048, out = 128;
  bool hidden_norm = true;  // batch norm before each ReLU; the linear layers have a bias without it
  bool bias = false;        // of the last linear layer
  bool final_norm = false;  // batch norm, without gamma and beta, after the last linear layer
  nn::BatchNormAttributes norm{};
};

// The heads of the papers: SimCLR (Chen et al. 2020); MoCo v2 (Chen et al. 2020), without norms; SwAV (Caron et al. 2020); Barlow
// Twins (Zbontar et al. 2021); the expander of VICReg (Bardes et al. 2022).
ProjectionOptions simclr_head(std::int64_t hidden = 2048, std::int64_t out = 128);
ProjectionOptions moco_head(std::int64_t hidden = 2048, std::int64_t out = 128);
ProjectionOptions swav_head(std::int64_t hidden = 2048, std::int64_t out = 128);
ProjectionOptions barlow_twins_head(std::int64_t width = 8192);
ProjectionOptions vicreg_head(std::int64_t width = 8192);

// [N, features] -> [N, out]; features are whole on each rank, as encoders return them.
class ProjectionHead : public nn::Module {
 public:
  ProjectionHead(nn::Module& parent, const std::string& name, const ProjectionOptions& options = {});
  Tensor operator()(const Tensor& x) override;

 private:
  ProjectionOptions o_;
  nn::List<nn::Linear> linears_;
  nn::List<nn::BatchNorm> norms_;  // of the hidden layers and after the last, if configured
};

// The prototypes of swav(), [count, width of z], with unit rows at the start: a replicated parameter. Renormalise them after each
// step (models/losses/contrastive/swav.h).
class Prototypes : public nn::Module {
 public:
  Prototypes(nn::Module& parent, const std::string& name, std::int64_t count = 3000);
  Tensor operator()(const Tensor& z) override;

 private:
  std::int64_t count_;
};

// A learned number, such as the t of clip()'s scale e^t: a replicated parameter without weight decay. The network calls value()
// in its function, so that build() creates it.
class LearnedNumber : public nn::Module {
 public:
  LearnedNumber(nn::Module& parent, const std::string& name, double start = 2.659260036932778);  // log(1 / 0.07)
  Tensor value();                                                                                // a scalar

 private:
  double start_;
};

}  // namespace mpigrad
