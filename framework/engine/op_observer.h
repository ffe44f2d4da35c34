#pragma once
// Who wants to know which ops run on this thread, with their attributes: what exports networks.

#include "framework/engine/op.h"

namespace mpigrad::detail {

class OpObserver {
 public:
  OpObserver();  // from now on, on this thread; one at a time
  virtual ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;
  // `op` is the struct whose functions these are: that of type Op if `&f == &detail::functions<Op>`.
  virtual void ran(const OpFunctions& f, const void* op, Inputs in, Outputs out) = 0;

  static OpObserver*& of_this_thread();
};

}  // namespace mpigrad::detail
