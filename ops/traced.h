#pragma once
// Runs of a function that find out what the function uses, for entries of the tape that run it again later.

#include <functional>

#include "framework/engine/loops.h"
#include "framework/engine/op.h"

namespace mpigrad::detail {

// The outputs of a function that ran under a tape of its own, which keeps identities and no elements.
struct Traced {
  Tensors outputs;
  std::vector<Tape::Entry> entries;
  std::vector<Memo> memos;  // values that this run has memoised, in order
};
// Runs f unseen by the tapes of this thread. The values of `known` are memoised already.
Traced traced(const std::function<Tensors()>& f, const std::vector<Memo>& known = {});

// The differentiable tensors other than `arguments` that the run has read or returned without computing them, and whether it
// communicates.
struct Used {
  Tensors tensors;
  bool communicates = false;
};
Used used_by(const Traced& run, const Tensors& arguments);

// While in scope on its thread, recompute() keeps no halos that arrive: for iterations without a known number of halos.
class KeepNoArrivals {
 public:
  KeepNoArrivals();
  ~KeepNoArrivals();
  KeepNoArrivals(const KeepNoArrivals&) = delete;
  KeepNoArrivals& operator=(const KeepNoArrivals&) = delete;

 private:
  void* suspended_;
};

}  // namespace mpigrad::detail
