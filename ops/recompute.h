#pragma once
// Trades memory for time: nothing inside f is kept for the replay, which runs f again.

#include <functional>
#include <memory>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

// y = f(x). f may use parameters and communicate; it must do the same each time it is called (random numbers are functions of
// their counters, so dropout does). Running statistics are changed by the first run alone. Halos that have arrived in the first
// run are kept, and not sent again.
//
// The tape keeps a copy of f and calls it in the replay, when this call is long over: what f refers to must live until then.
// A lambda captures tensors and numbers by value ([=] or [w], handles are cheap to copy); by reference only what outlives the
// tape, such as the layers of a network through `this`. Locals captured by reference are read after their end.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

// Gives the memory of y back until somebody reads it, as the replay does, and computes it again then, without the halos, which
// are kept: for a tensor that nobody reads again before. Of results of norms, whose inputs the tape keeps anyway, and of join();
// others, tensors on a GPU, and those of which no tape knows stay as they are.
void drop_until_read(const Tensor& y);
// concatenate({a, b}, axis), which drop_until_read() takes.
Tensor join(const Tensor& a, const Tensor& b, int axis);

namespace detail {

// Something that is to arrive from other ranks inside of recompute()'s function, and is small beside what is computed with it.
// The first run keeps it; the others find it, in the order of the calls, and need not ask for it again.
class Arrival {
 public:
  // The next one of what runs on this thread; outside of recompute() nothing is known, and nothing is kept.
  static Arrival next();
  // What arrived in the first run; no tensor in the first run.
  Tensor known() const { return known_; }
  bool wanted() const { return !places_.empty(); }
  // Called by the first run, when it is there.
  void keep(const Tensor& arrived) const;

 private:
  Tensor known_;
  std::vector<std::shared_ptr<Tensor>> places_;  // of this function and of those around it
};

}  // namespace detail
}  // namespace mpigrad
