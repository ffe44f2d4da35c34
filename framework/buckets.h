#pragma once
// Reductions of parameters' cotangents over ranks, under way while the replay goes on. Small ones travel together: one message
// per bucket instead of one per bias. Buckets fill in the order of the replay, which is the same on all ranks.

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/tape.h"

namespace mpigrad {

class ReductionBuckets {
 public:
  static constexpr std::int64_t full = 1 << 20;  // bytes; a cotangent of as many goes on its own, without a copy

  // Reduces `cotangent` of tensor `id`, now or with others that are to come.
  void add(std::uint64_t id, const Tensor& cotangent, const StartReduction& reduce);
  bool contains(std::uint64_t id) const { return places_.contains(id); }
  // Starts what has not been started.
  void flush();
  // The reduced cotangent; after flush().
  Tensor wait(std::uint64_t id);

 private:
  struct Bucket {
    StartReduction reduce;
    std::vector<Tensor> parts;
    std::int64_t bytes = 0;
    std::unique_ptr<PendingCotangent> pending;
    Tensor result;  // one dimension, all parts
  };
  struct Place {
    std::shared_ptr<Bucket> bucket;
    TensorType type;
    std::int64_t offset = 0;  // in bytes
  };
  static void start(Bucket& bucket);

  std::map<std::pair<std::uint64_t, DType>, std::shared_ptr<Bucket>> open_;  // by group of ranks
  std::unordered_map<std::uint64_t, Place> places_;
};

}  // namespace mpigrad
