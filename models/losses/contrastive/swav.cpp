#include "models/losses/contrastive/swav.h"

#include <cmath>
#include <limits>

#include "comm/collectives/reductions.h"
#include "comm/distributed/invariant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

// log of the sum of exp(x) over the samples of all ranks: [1, K]
Tensor logsumexp_of_samples(const Tensor& x, const Communicator& comm) {
  const auto none = full({1, x.dim(1)}, std::numeric_limits<double>::lowest(), DType::float64);
  const auto largest = allreduce(x.dim(0) > 0 ? max(x, {0}, true) : cast(none, x.dtype()), comm, ReduceOp::max);
  return log(allreduce(sum(exp(x - largest), {0}, true), comm)) + largest;
}

// Assignments of this rank's samples, computed together with the earlier ones of the queue, of which each rank takes a part.
Tensor assigned(const Tensor& scores, const Tensor& queue, const Tensor& prototypes, const Batch& batch,
                const SinkhornAttributes& at) {
  if (!queue) return sinkhorn(scores, batch.comm, at);
  Untaped scope;
  require(queue.rank() == 2 && queue.dim(1) == batch.width, "[swav] the queue is {}, embeddings have the width {}", queue,
          batch.width);
  const auto cuts = balanced_cuts(queue.dim(0), batch.comm.size());
  const auto r = static_cast<std::size_t>(batch.comm.rank());
  const auto mine = constant(slice(queue, 0, cuts[r], cuts[r + 1]));
  const auto earlier =
      matmul(mine.dtype() == scores.dtype() ? mine : cast(mine, scores.dtype()), constant(prototypes), {.transpose_b = true});
  const auto all = sinkhorn(concatenate({earlier, constant(scores)}, 0), batch.comm, at);
  return constant(slice(all, 0, earlier.dim(0), all.dim(0)));
}

}  // namespace

Tensor sinkhorn(const Tensor& scores, const Communicator& comm, const SinkhornAttributes& at) {
  require(scores.rank() == 2 && scores.dim(1) > 0, "[sinkhorn] scores are [samples, prototypes]: {}", scores);
  require(at.epsilon > 0 && at.iterations > 0, "[sinkhorn] epsilon and iterations are positive, got {} and {}", at.epsilon,
          at.iterations);
  Untaped scope;
  UseDevice device(scores.device());
  const auto prototypes = static_cast<double>(scores.dim(1));
  auto q = (is_half(scores.dtype()) ? cast(scores.without_layout(), DType::float32) : scores.without_layout()) / at.epsilon;
  // The factors N and the division by the total sum cancel: the assignments of each sample sum to 1 after the last step.
  for (int i = 0; i < at.iterations; ++i) {
    q = q - logsumexp_of_samples(q, comm) - std::log(prototypes);
    q = q - logsumexp(q, {1}, true);
  }
  return constant(exp(q));
}

Tensor swav(const Tensors& crops, const Tensor& prototypes, const Communicator& comm, const SwavAttributes& at) {
  const auto count = static_cast<int>(crops.size());
  require(at.assigned_crops >= 1 && count >= 2 && at.assigned_crops <= count, "[swav] {} of {} crops are assigned",
          at.assigned_crops, count);
  require(at.queue.empty() || static_cast<int>(at.queue.size()) == at.assigned_crops,
          "[swav] {} crops are assigned, the queue has {}", at.assigned_crops, at.queue.size());
  require(prototypes.rank() == 2 && prototypes.dim(0) > 0, "[swav] prototypes are [prototypes, width]: {}", prototypes);
  const auto batch = inspect("swav", crops, comm, {.refuse_zeros = at.refuse_zeros, .temperature = at.temperature});
  require(prototypes.dim(1) == batch.width, "[swav] prototypes are {}, embeddings {}", prototypes, crops[0]);
  const auto dtype = batch.views[0].dtype();
  const auto replicated = at.freeze_prototypes ? constant(prototypes.without_layout()) : replicate(prototypes, comm);
  const auto targets = replicated.dtype() == dtype ? replicated : cast(replicated, dtype);
  Tensors scores, predictions;
  for (const auto& crop : batch.views) {
    scores.push_back(matmul(unit_rows(crop), targets, {.transpose_b = true}));
    predictions.push_back(log_softmax(scores.back() * (1 / at.temperature)));
  }
  Tensor share;
  for (int a = 0; a < at.assigned_crops; ++a) {
    const auto crop = static_cast<std::size_t>(a);
    const auto assignment = assigned(scores[crop], at.queue.empty() ? Tensor() : at.queue[crop], targets, batch, at.sinkhorn);
    for (int v = 0; v < count; ++v) {
      if (v == a) continue;
      const auto term = sum(assignment * predictions[static_cast<std::size_t>(v)]);
      share = share ? share + term : term;
    }
  }
  return batch.share(share * (-1 / (static_cast<double>(batch.all) * at.assigned_crops * (count - 1))));
}

SwavQueue::SwavQueue(const SwavQueueAttributes& at) : samples_(at.samples) {
  require(at.crops > 0, "[swav] a queue has crops, not {}", at.crops);
  for (int i = 0; i < at.crops; ++i)
    queues_.emplace_back(QueueAttributes{.keys = at.samples, .width = at.width, .dtype = at.dtype});
}

void SwavQueue::enqueue(const Tensors& crops, const Communicator& comm) {
  Untaped scope;
  require(crops.size() == queues_.size(), "[swav] the queue has {} crops, {} are given", queues_.size(), crops.size());
  const auto batch = inspect("swav", crops, comm, {.smallest = 0, .refuse_zeros = false});
  for (std::size_t i = 0; i < queues_.size(); ++i) queues_[i].enqueue(unit_rows(batch.views[i]), comm);
  stored_ += batch.all;
}

Tensors SwavQueue::embeddings() const { return full() ? state() : Tensors(); }

Tensors SwavQueue::state() const {
  Tensors result;
  for (const auto& queue : queues_) result.push_back(queue.keys());
  return result;
}

void SwavQueue::load(const Tensors& state, std::int64_t next, std::int64_t stored) {
  require(state.size() == queues_.size() && stored >= 0, "[swav] the queue has {} crops, what is loaded {}, {} samples stored",
          queues_.size(), state.size(), stored);
  for (std::size_t i = 0; i < state.size(); ++i) queues_[i].load(state[i], next);
  stored_ = stored;
}

void renormalise_prototypes(Tensor prototypes) {
  require(prototypes.rank() == 2, "[swav] prototypes are [prototypes, width]: {}", prototypes);
  Untaped scope;
  const auto unit = unit_rows(constant(prototypes));
  detail::copy_bytes(unit.device(), prototypes.raw(), unit.raw(), unit.bytes());
}

}  // namespace mpigrad::contrastive
