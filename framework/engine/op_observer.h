#pragma once
// Callback invoked after every op on this thread, with the attributes of the op; used by the ONNX exporter and the step tracer.

#include "framework/engine/op.h"

namespace mpigrad::detail {

class OpObserver {
 public:
  OpObserver();  // observes this thread from now on; one observer at a time
  virtual ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;
  // `op` points to the struct that `f` belongs to; its type is Op if `&f == &detail::functions<Op>`.
  virtual void ran(const OpFunctions& f, const void* op, Inputs in, Outputs out) = 0;

  static OpObserver*& of_this_thread();
};

}  // namespace mpigrad::detail
