#pragma once
// Deep supervision: a loss of the scores of several resolutions of a network.

#include <functional>
#include <vector>

#include "framework/engine/op.h"
#include "ops/extents.h"

namespace mpigrad {

struct CoarseScores {
  Tensor scores;      // [N, D', H', W', classes], D' = ceil(D / stride)
  Triple stride = 1;  // cells of the finest level to one cell
};

// A network whose function makes scores of coarse levels, too.
class DeeplySupervised {
 public:
  virtual ~DeeplySupervised() = default;
  // Those of the last call of its function in training, from fine to coarse; empty if it made none. They are moved out: the
  // network does not keep them, so that their memory lives no longer than the tape.
  virtual std::vector<CoarseScores> take_coarse_scores() = 0;
};

// Sum over levels i = 0, 1, 2, ... of w_i loss(scores_i, labels_i), with w_i proportional to 1, 1/2, 1/4, ... and of sum 1
// (Isensee et al. 2021). labels [N, D, H, W] are integers below 2^24 in absolute value; those of a coarse cell are of the first
// of its cells along each axis. The same on every grid.
Tensor deep_supervision_loss(const std::function<Tensor(const Tensor& scores, const Tensor& labels)>& loss, const Tensor& scores,
                             const std::vector<CoarseScores>& coarse, const Tensor& labels);

}  // namespace mpigrad
