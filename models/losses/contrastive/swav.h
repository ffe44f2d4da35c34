#pragma once
// Swapped assignments to prototypes (Caron et al. 2020), with Sinkhorn's assignments over the samples of all ranks.

#include "models/losses/contrastive/batch.h"
#include "models/losses/contrastive/moco.h"

namespace mpigrad::contrastive {

struct SinkhornAttributes {
  double epsilon = 0.05;
  int iterations = 3;
};

// scores: [n, K], of this rank's samples for K prototypes; N is the number of samples on all ranks. With Q = exp(scores /
// epsilon)^T, Q /= its sum, and `iterations` times { Q /= row sums * K; Q /= column sums * N }, returns the assignments N Q^T:
// [n, K], whose rows sum to 1. Computed in logarithms, so that nothing overflows. Collective (two K-vectors reduced per
// iteration); the result is a constant, not recorded.
Tensor sinkhorn(const Tensor& scores, const Communicator& comm, const SinkhornAttributes& attributes = {});

struct SwavAttributes {
  double temperature = 0.1;
  SinkhornAttributes sinkhorn{};
  int assigned_crops = 2;          // the first crops, of full size, are assigned; predictions use all crops
  bool freeze_prototypes = false;  // prototypes get no derivative, as in the first iterations
  bool refuse_zeros = true;
  // Earlier embeddings that are assigned together with those of each assigned crop, [m, D] with unit rows, the same on all ranks:
  // SwavQueue::embeddings(). The even use of prototypes then extends over more samples than a small batch has.
  Tensors queue{};
};

// crops: embeddings of every crop of the same samples, [n, D] each; prototypes: [K, D], unit rows, the same on all ranks
// (renormalise_prototypes after each step). scores_v = unit rows of crop v times prototypes^T, q_a = sinkhorn(scores_a):
//
//   L = mean over assigned crops a and other crops v of -1/N sum over i, k of q_a,ik log softmax(scores_v / T)_ik
// Returns this rank's share, as in models/losses/contrastive/pairs.h.
Tensor swav(const Tensors& crops, const Tensor& prototypes, const Communicator& comm, const SwavAttributes& attributes = {});

struct SwavQueueAttributes {
  int crops = 2;                // number of assigned crops
  std::int64_t samples = 3840;  // of all ranks together
  std::int64_t width = 128;
  DType dtype = DType::float32;
};

// The latest embeddings of each assigned crop, the same on all ranks. Usually used only after some epochs, when embeddings change
// slowly enough; until it is full it returns none.
class SwavQueue {
 public:
  explicit SwavQueue(const SwavQueueAttributes& attributes = {});
  // Replaces the oldest embeddings by all ranks' embeddings of the assigned crops, [n, width] each, normalised to unit length.
  // Call it after the step that used them; collective, not recorded. Errors: another number of crops; more samples than the queue
  // holds.
  void enqueue(const Tensors& crops, const Communicator& comm);
  bool full() const { return stored_ >= samples_; }
  Tensors embeddings() const;  // one [samples, width] for each crop, constants; empty until it is full

  // For checkpoints.
  std::int64_t stored() const { return stored_; }  // samples so far
  std::int64_t next() const { return queues_[0].next(); }
  Tensors state() const;  // all places, including empty ones
  void load(const Tensors& state, std::int64_t next, std::int64_t stored);

 private:
  std::int64_t samples_, stored_ = 0;
  std::vector<KeyQueue> queues_;
};

// Rows to unit norm, in place: before the first step and after every one, outside the tape.
void renormalise_prototypes(Tensor prototypes);

}  // namespace mpigrad::contrastive
