#pragma once
// Trades memory for time: nothing inside f is kept for the replay, which runs f again.

#include <functional>

#include "framework/op.h"

namespace mpigrad {

// y = f(x). f may use parameters and communicate; it must do the same each time it is called (random numbers are functions of
// their counters, so dropout does). Running statistics belong outside.
//
// The tape keeps a copy of f and calls it in the replay, when this call is long over: what f refers to must live until then.
// A lambda captures tensors and numbers by value ([=] or [w], handles are cheap to copy); by reference only what outlives the
// tape, such as the layers of a network through `this`. Locals captured by reference are read after their end.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace mpigrad
