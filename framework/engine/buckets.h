#pragma once
// Reductions of parameters' cotangents over ranks, which overlap with the replay. Small cotangents are sent together: one message
// per bucket instead of one per bias. Buckets fill in the order of the replay, which is the same on all ranks.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/engine/tape.h"
#include "framework/optim/division.h"

namespace mpigrad {

// While in scope on its thread: the sum of squares of this rank's cotangents before they are reduced, which belong to its own
// part of the objective. Costs a pass over the cotangents; on a GPU the host waits.
class LocalGradientNorm {
 public:
  LocalGradientNorm();
  ~LocalGradientNorm();
  LocalGradientNorm(const LocalGradientNorm&) = delete;
  LocalGradientNorm& operator=(const LocalGradientNorm&) = delete;
  double squared() const { return squared_; }
  std::int64_t elements() const { return elements_; }  // of these cotangents
  // Called at the start of each reduction.
  static void started(const Tensor& cotangent);

 private:
  double squared_ = 0;
  std::int64_t elements_ = 0;
  LocalGradientNorm* outer_;
};

class ReductionBuckets {
 public:
  static constexpr std::int64_t full = 1 << 20;  // bytes; a cotangent of at least this size is sent on its own, without a copy

  // Reduces `cotangent` of tensor `id`, now or together with later ones. With `rows`, each rank gets the sum of its rows only.
  void add(std::uint64_t id, Tensor cotangent, const StartReduction& reduce, LayoutPtr rows = nullptr);
  bool contains(std::uint64_t id) const { return places_.contains(id); }
  // Starts all remaining reductions.
  void flush();
  // The reduced cotangent; after flush(). Does not wait for one of rows: accesses to its elements do.
  Tensor wait(std::uint64_t id);

 private:
  struct Bucket {
    StartReduction reduce;
    std::vector<Tensor> parts{};
    std::vector<LayoutPtr> rows{};  // of the parts; empty: whole parts are summed
    std::int64_t bytes = 0;
    std::unique_ptr<PendingCotangent> pending{};
    Tensor result{};       // one dimension, all parts
    bool stored = false;   // the parameters are stored in these rows
    bool of_rows = false;  // started in sums_, as bucket `number`
    std::size_t number = 0;
  };
  struct Place {
    std::shared_ptr<Bucket> bucket;
    TensorType type;
    std::int64_t offset = 0;  // in bytes
    std::size_t number = 0;   // among the bucket's parts
  };
  void start(Bucket& bucket);

  // By group of ranks, type, whether only rows are summed, and whether these are what is stored.
  std::map<std::tuple<std::uint64_t, DType, bool, bool>, std::shared_ptr<Bucket>> open_;
  std::shared_ptr<SummedRows> sums_;
  std::unordered_map<std::uint64_t, Place> places_;
};

class Parameters;

// Sums the cotangents of parameters over ranks in one replay. For all micro-batches but the last the cotangents are kept without
// being reduced; otherwise they are reduced in buckets during the replay, together with those that earlier micro-batches kept.
class Reducer {
 public:
  // `accumulate` as in GradientOptions; without it there are no micro-batches, and `parameters` may be null.
  Reducer(Parameters* parameters, std::optional<bool> accumulate) : parameters_(parameters), accumulate_(accumulate) {}

  // Takes the cotangent of tensor `id`. Returns false if it already has one: `cotangent` is then unchanged and the vjp must
  // reduce it.
  bool take(std::uint64_t id, Tensor& cotangent, const StartReduction& reduce);
  // Starts all remaining reductions.
  void flush() { buckets_.flush(); }
  // Waits for the reduced cotangent of tensor `id` and returns it, or no tensor if there is none; after flush().
  Tensor wait(std::uint64_t id) { return buckets_.contains(id) ? buckets_.wait(id) : Tensor(); }

 private:
  Parameters* parameters_;
  std::optional<bool> accumulate_;
  ReductionBuckets buckets_;
};

}  // namespace mpigrad
