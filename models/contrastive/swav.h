#pragma once
// Swapped assignments to prototypes (Caron et al. 2020), with Sinkhorn's assignments over the samples of all ranks.

#include "models/contrastive/batch.h"

namespace mpigrad::contrastive {

struct SinkhornAttributes {
  double epsilon = 0.05;
  int iterations = 3;
};

// scores: [n, K], of this rank's N samples of all ranks to K prototypes. With Q = exp(scores / epsilon)^T, Q /= its sum,
// `iterations` times { Q /= row sums * K; Q /= column sums * N }, the assignments N Q^T: [n, K], whose rows sum to 1. In
// logarithms, so that nothing overflows. Collective (two K-vectors reduced per iteration); a constant, not recorded.
Tensor sinkhorn(const Tensor& scores, const Communicator& comm, const SinkhornAttributes& attributes = {});

struct SwavAttributes {
  double temperature = 0.1;
  SinkhornAttributes sinkhorn{};
  int assigned_crops = 2;          // the first ones, of full size: these are assigned; all crops are predicted from
  bool freeze_prototypes = false;  // no derivative for them, as in the first iterations
  bool refuse_zeros = true;
};

// crops: embeddings of every crop of the same samples, [n, D] each; prototypes: [K, D], unit rows, the same on all ranks
// (renormalise_prototypes after each step). scores_v = unit rows of crop v times prototypes^T, q_a = sinkhorn(scores_a):
//
//   L = mean over assigned crops a and other crops v of -1/N sum over i, k of q_a,ik log softmax(scores_v / T)_ik
//
// This rank's share, as in models/contrastive/pairs.h.
Tensor swav(const Tensors& crops, const Tensor& prototypes, const Communicator& comm, const SwavAttributes& attributes = {});

// Rows to unit norm, in place: before the first step and after every one, outside the tape.
void renormalise_prototypes(Tensor prototypes);

}  // namespace mpigrad::contrastive
