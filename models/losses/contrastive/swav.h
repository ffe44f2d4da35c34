#pragma once
// Swapped assignments to prototypes (Caron et al. 2020), with Sinkhorn's assignments over the samples of all ranks.

#include "models/losses/contrastive/batch.h"
#include "models/losses/contrastive/moco.h"

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
  // Earlier embeddings that are assigned together with each assigned crop's, [m, D] of unit rows, the same on all ranks:
  // SwavQueue::embeddings(). Prototypes are then used evenly over more samples than a small batch has.
  Tensors queue{};
};

// crops: embeddings of every crop of the same samples, [n, D] each; prototypes: [K, D], unit rows, the same on all ranks
// (renormalise_prototypes after each step). scores_v = unit rows of crop v times prototypes^T, q_a = sinkhorn(scores_a):
//
//   L = mean over assigned crops a and other crops v of -1/N sum over i, k of q_a,ik log softmax(scores_v / T)_ik
//
// This rank's share, as in models/losses/contrastive/pairs.h.
Tensor swav(const Tensors& crops, const Tensor& prototypes, const Communicator& comm, const SwavAttributes& attributes = {});

struct SwavQueueAttributes {
  int crops = 2;                // that are assigned
  std::int64_t samples = 3840;  // of all ranks together
  std::int64_t width = 128;
  DType dtype = DType::float32;
};

// The latest embeddings of each assigned crop, the same on all ranks. It is customary to begin with it after some epochs, when
// embeddings change slowly enough; before it is full it gives none.
class SwavQueue {
 public:
  explicit SwavQueue(const SwavQueueAttributes& attributes = {});
  // All ranks' embeddings of the assigned crops, [n, width] each, brought to unit length, take the place of the oldest. After the
  // step that used them; collective, not recorded. Errors: another number of crops; more samples than the queue holds.
  void enqueue(const Tensors& crops, const Communicator& comm);
  bool full() const { return stored_ >= samples_; }
  Tensors embeddings() const;  // one [samples, width] for each crop, constants; none before it is full

  // For checkpoints.
  std::int64_t stored() const { return stored_; }  // samples so far
  std::int64_t next() const { return queues_[0].next(); }
  Tensors state() const;  // all places, also those that nothing was put in yet
  void load(const Tensors& state, std::int64_t next, std::int64_t stored);

 private:
  std::int64_t samples_, stored_ = 0;
  std::vector<KeyQueue> queues_;
};

// Rows to unit norm, in place: before the first step and after every one, outside the tape.
void renormalise_prototypes(Tensor prototypes);

}  // namespace mpigrad::contrastive
