#pragma once
// Access to tapes and replays for entries that stand for a whole loop of a function: time loops (models/simulation/steps.h).

#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad::detail {

// Inside a vjp: removes the cotangent that its input x has so far in this replay, and returns it, or no tensor. The vjp adds its
// terms to it one by one and returns the sum as the cotangent of x: the additions are then those of a tape that has recorded
// every step of the loop, in the same order.
Tensor take_cotangent(const Tensor& x);

// A value of Tape::memoised().
struct Memo {
  std::uint64_t tensor = 0;
  const void* key = nullptr;
  Tensor value;
};

// While in scope: collects the values that tapes of this thread compute for Tape::memoised().
class NewMemos {
 public:
  NewMemos();
  ~NewMemos();
  NewMemos(const NewMemos&) = delete;
  NewMemos& operator=(const NewMemos&) = delete;
  std::vector<Memo> found;

 private:
  NewMemos* outer_;
};

}  // namespace mpigrad::detail
