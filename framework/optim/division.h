#pragma once
// Division of an optimizer's work among ranks that hold the same parameters (ZeRO stage 1; Rajbhandari et al. 2020). Each rank
// has the state of some rows of every divided parameter and updates these rows. Gradients are reduce-scattered in place of
// allreduced, and updated rows are gathered while training goes on: together as many bytes as an allreduce.
//
// The rows are a balanced split of a parameter's first dimension, in a layout on one line of all ranks, so that norms,
// checkpoints and redistributions work with them as with other tensors in blocks.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/engine/parameter.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

class Division {
 public:
  static constexpr std::int64_t least_state = 1 << 20;  // bytes; nothing is divided if an optimizer has less state
  static constexpr std::int64_t full = 1 << 20;         // bytes of a bucket

  // Divides the parameters that are replicated on all ranks of a grid of several ranks and lie in host memory that no program
  // owns. `why` gets the reason if there are none.
  Division(const Parameters& parameters, std::string& why);

  bool divides(std::size_t i) const { return rows_[i] != nullptr; }
  bool divides_any() const { return !buckets_.empty(); }
  int ranks() const { return ranks_; }  // of the first divided parameter
  // The rows of parameter `id` if it is divided and `over` (StartReduction) are all ranks of its grid; else null.
  LayoutPtr rows_of(std::uint64_t id, std::uint64_t over) const;
  // This rank's rows of `whole`, which has the type of parameter i, in the memory of `whole`; `whole` if i is not divided.
  Tensor own(std::size_t i, const Tensor& whole) const;
  // The divided parameters, in the order in which a backward pass finishes their gradients.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }
  // Starts to gather the rows of these parameters from all ranks. An access to such a parameter waits for its rows.
  void gather(const std::vector<std::size_t>& bucket) const;

 private:
  const Parameters& parameters_;
  std::vector<LayoutPtr> rows_;  // by parameter; null: not divided
  std::unordered_map<std::uint64_t, std::size_t> places_;
  std::vector<std::vector<std::size_t>> buckets_;
  int ranks_ = 1;
};

// Sums over ranks of one replay's gradients, of which each rank has its rows. Tensors of whole gradients gather the others' rows
// when they are read first: all buckets at once, so that this read is collective.
class SummedRows : public std::enable_shared_from_this<SummedRows> {
 public:
  // Starts the sum of these gradients, of one element type, whose rows lie on the same ranks. Returns the number of the bucket.
  std::size_t start(std::vector<Tensor> gradients, std::vector<LayoutPtr> rows);
  // Waits for all buckets but this one and the one before it.
  void wait_before(std::size_t bucket);
  // The gradient with that place in the bucket, without waiting for its elements.
  Tensor whole(std::size_t bucket, std::size_t place, const TensorType& type);

  // This rank's rows of a tensor that whole() returned, with their layout, after waiting for their sum; no tensor for others.
  static Tensor own(const Tensor& gradient);

 private:
  class Arrival;
  struct Bucket {
    std::vector<LayoutPtr> rows;
    std::vector<std::int64_t> counts;  // elements of each rank
    Tensor sum;                        // this rank's
    GridShape::Wait wait;
    Tensor all;  // of all ranks, after gather()
  };
  void wait(Bucket& bucket);
  void gather();
  std::mutex mutex_;
  std::vector<Bucket> buckets_;
};

}  // namespace mpigrad
