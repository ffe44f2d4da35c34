#pragma once
// Trades time for memory: the tape keeps nothing from inside f; the replay runs f again.

#include <functional>
#include <memory>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

// y = f(x). f may use parameters and communicate. It must compute the same at each call; dropout does, because random numbers are
// functions of their counters. Only the first run changes running statistics. Halos that arrive in the first run are kept and not
// sent again.
//
// The tape keeps a copy of f and calls it in the replay, after this call has returned: everything that f refers to must live
// until then. Let a lambda capture tensors and numbers by value ([=] or [w]; handles are cheap to copy), and capture by reference
// only objects that outlive the tape, such as the layers of a network through `this`. A local variable captured by reference
// would be read after its end.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

// Frees the memory of y until y is read again, for example by the replay, and computes y again then; halos are kept. For tensors
// that are not read before the replay. Applies to results of norms, whose inputs the tape keeps anyway, and of join(); other
// tensors and tensors that no tape recorded stay as they are.
void drop_until_read(const Tensor& y);
// concatenate({a, b}, axis); drop_until_read() accepts its result.
Tensor join(const Tensor& a, const Tensor& b, int axis);

namespace detail {

// A tensor that arrives from other ranks inside recompute()'s function and is small compared with the tensors computed from it.
// The first run keeps it; later runs find it in the order of the calls and do not request it again.
class Arrival {
 public:
  // The next arrival of this thread's recompute() run; outside recompute() nothing is known and nothing is kept.
  static Arrival next();
  // Whether recompute()'s function runs on this thread, under a tape or not.
  static bool inside();
  // The tensor that arrived in the first run; no tensor in the first run.
  Tensor known() const { return known_; }
  bool wanted() const { return !places_.empty(); }
  // Called by the first run when the tensor has arrived.
  void keep(const Tensor& arrived) const;

 private:
  Tensor known_;
  std::vector<std::shared_ptr<Tensor>> places_;  // of this function and of the enclosing recompute() functions
};

}  // namespace detail
}  // namespace mpigrad
