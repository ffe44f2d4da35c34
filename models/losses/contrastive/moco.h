#pragma once
// Momentum contrast (He et al. 2020): queries against keys of a slowly moving copy of the encoder, and against a queue of earlier
// keys. Keys carry no derivative, so the loss is a sum over queries and gathers nothing.

#include "framework/engine/parameter.h"
#include "framework/tensor/random.h"
#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

struct QueueAttributes {
  std::int64_t keys = 65536;
  std::int64_t width = 128;
  DType dtype = DType::float32;
  std::uint64_t seed = 0;  // of the random unit vectors in the initial queue
};

// The latest keys, the same on all ranks: [keys, width].
class KeyQueue {
 public:
  explicit KeyQueue(const QueueAttributes& attributes = {});
  // Replaces the oldest keys by those of all ranks, [n, width], in the order of ranks. Collective; not recorded. Errors: more
  // keys than the queue holds; another width.
  void enqueue(const Tensor& keys, const Communicator& comm);
  // A constant, which shares the queue's memory until the next enqueue() replaces it.
  const Tensor& keys() const { return keys_; }
  std::int64_t next() const { return next_; }  // the place of the next key
  // Restores the values of keys() and next() from a checkpoint.
  void load(const Tensor& keys, std::int64_t next);

 private:
  Tensor keys_;
  std::int64_t next_ = 0;
};

struct MocoAttributes {
  double temperature = 0.07;
  bool normalise = true, refuse_zeros = true;
};

// q, k: [n, D], queries and their positive keys; queue: [K, D], unit rows. k and the queue get no derivative. With N queries on
// all ranks:
//
//   L = 1/N sum over i of -log( exp(q_i . k_i / T) / (exp(q_i . k_i / T) + sum over j of exp(q_i . queue_j / T)) )
// Returns this rank's share, as in models/losses/contrastive/pairs.h.
Tensor moco(const Tensor& q, const Tensor& k, const Tensor& queue, const Communicator& comm,
            const MocoAttributes& attributes = {});

// key <- momentum key + (1 - momentum) query, in place, parameter by parameter; momentum 0 copies. Outside the tape. Errors:
// lists whose shapes or types differ.
void update_momentum_encoder(Parameters& key, const Parameters& query, double momentum = 0.999);

// Moves samples between ranks at random, so that batch norm over one rank's samples cannot reveal which samples belong together:
// the key encoder gets shuffle(x), and restore() moves its embeddings back. Every rank keeps its number of samples.
class SampleShuffle {
 public:
  // rows: number of samples of every rank. `random`: the same on all ranks, a new one for each step.
  SampleShuffle(const Communicator& comm, Rows rows, const Philox& random);
  // [n, ...]: sample p of the global batch becomes sample order[p]. Collective, differentiable.
  Tensor shuffle(const Tensor& x) const { return move(x, order_); }
  Tensor restore(const Tensor& x) const { return move(x, inverse_); }
  const Rows& order() const { return order_; }

 private:
  Tensor move(const Tensor& x, const Rows& source) const;
  Communicator comm_;
  Rows rows_, order_, inverse_;
};

}  // namespace mpigrad::contrastive
