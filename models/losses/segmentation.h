#pragma once
// Losses of segmentation: scores [N, D, H, W, C] beside labels, integers [N, D, H, W] in [0, C). All sums are over the whole
// volume, wherever its parts are, so that the loss and its gradient are those of one rank on every grid; what ranks exchange are
// 3 N C numbers. The value is a rank's share, as of every loss. 16-bit scores are computed with in float32.

#include <vector>

#include "framework/engine/op.h"

namespace mpigrad::segmentation {

struct OverlapOptions {
  bool background = true;    // whether class 0 counts
  bool whole_batch = false;  // one overlap for each class; else for each sample and class, and their mean
  double smoothing = 1e-6;   // added to numerator and denominator, so that an absent class is found where nothing is predicted
};
// 1 - mean of (2 sum p t + s) / (sum p + sum t + s), p = softmax(scores), t = 1 where the label is the class (Milletari et al.
// 2016, without squares, as MLPerf's 3D U-Net has it).
Tensor soft_dice_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options = {});
// (soft_dice_loss + cross_entropy) / 2
Tensor dice_cross_entropy_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options = {});

struct TverskyOptions {
  double false_positives = 0.5, false_negatives = 0.5;  // their weights: 0.5 both is Dice, but for s
  OverlapOptions overlap{};
};
// 1 - mean of (T + s) / (T + a F + b M + s), T = sum p t, F = sum p (1 - t), M = sum (1 - p) t (Salehi et al. 2017)
Tensor tversky_loss(const Tensor& scores, const Tensor& labels, const TverskyOptions& options = {});

struct FocalOptions {
  double gamma = 2;
  std::vector<double> weights{};  // of the classes; none: 1
};
// Mean over all cells of -w_t (1 - p_t)^gamma log p_t, t the label (Lin et al. 2017)
Tensor focal_loss(const Tensor& scores, const Tensor& labels, const FocalOptions& options = {});

}  // namespace mpigrad::segmentation
