#pragma once
// Losses of segmentation: scores [N, D, H, W, C] compared with labels, integers [N, D, H, W] in [0, C). All sums are over the
// whole volume, on whatever ranks its blocks are, so that on every grid the loss and its gradient equal those of one rank; ranks
// exchange 3 N C numbers. The value is the rank's share, as for every loss. 16-bit scores are converted to float32. Cells whose
// label is `ignored`, which may be outside [0, C), count in no sum and no mean and have a gradient of 0; a batch of such cells
// only has the loss 0.

#include <optional>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad::segmentation {

struct OverlapOptions {
  bool background = true;    // whether class 0 counts
  bool whole_batch = false;  // true: one overlap per class; false: one per sample and class; the loss takes the mean
  double smoothing = 1e-6;   // added to numerator and denominator: an absent class that is not predicted has overlap 1
  std::optional<std::int64_t> ignored{};
};
// 1 - mean of (2 sum p t + s) / (sum p + sum t + s), p = softmax(scores), t = 1 where the label is the class (Milletari et al.
// 2016, without squares, as in MLPerf's 3D U-Net).
Tensor soft_dice_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options = {});
// (soft_dice_loss + cross_entropy) / 2
Tensor dice_cross_entropy_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options = {});

struct TverskyOptions {
  double false_positives = 0.5, false_negatives = 0.5;  // their weights a and b; 0.5 for both is Dice, except for s
  OverlapOptions overlap{};
};
// 1 - mean of (T + s) / (T + a F + b M + s), T = sum p t, F = sum p (1 - t), M = sum (1 - p) t (Salehi et al. 2017)
Tensor tversky_loss(const Tensor& scores, const Tensor& labels, const TverskyOptions& options = {});

struct FocalOptions {
  double gamma = 2;
  std::vector<double> weights{};  // one per class; none: 1
  std::optional<std::int64_t> ignored{};
};
// Mean over all cells that are not ignored of -w_t (1 - p_t)^gamma log p_t, t the label (Lin et al. 2017)
Tensor focal_loss(const Tensor& scores, const Tensor& labels, const FocalOptions& options = {});

struct RegionOptions {
  std::vector<std::vector<std::int64_t>> regions{};  // the labels of the cells in each region; one at least
  std::int64_t classes = 0;                          // labels are in [0, classes)
  OverlapOptions overlap{};                          // `background` has no meaning
};
// Unions of classes that may overlap, as in nnU-Net's regions: scores [N, D, H, W, regions], p = sigmoid(scores), t = 1 where the
// label is in the region. (1 - mean of (2 sum p t + s) / (sum p + sum t + s) + mean of the binary cross-entropies) / 2
Tensor region_loss(const Tensor& scores, const Tensor& labels, const RegionOptions& options);

}  // namespace mpigrad::segmentation
