#pragma once
// Losses of the order of scores, over pairs of samples that may lie on different ranks.

#include "comm/collectives/collectives.h"

namespace mpigrad {

struct AucOptions {
  double margin = 1;  // by which a positive sample's score ought to exceed a negative one's
};

// A surrogate of 1 - the area under the ROC curve, the squared hinge of all pairs (Gao and Zhou 2015; LibAUC, Yuan et al. 2021).
// scores: [n, 1]; labels: [n], boolean or int64, of which all but 0 are positive; n may differ between ranks and be 0. With the
// sets + and - of the samples on all ranks:
//
//   L = 1 / (|+| |-|) sum over i in +, j in - of max(0, margin - (s_i - s_j))^2
//
// `comm`: an empty communicator if this rank has the whole batch.
// Returns this rank's share: the sum over ranks is the loss of the global batch, and so is the objective of gradient(). 0 for a
// batch without positive or without negative samples. Errors, on all ranks: those of contrastive::inspect(); several scores for a
// sample.
Tensor auc_loss(const Tensor& scores, const Tensor& labels, const Communicator& comm, const AucOptions& options = {});

}  // namespace mpigrad
