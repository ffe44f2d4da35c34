#pragma once
// Trades memory for time: nothing inside f is kept for the replay, which runs f again.

#include <functional>

#include "framework/op.h"

namespace mpigrad {

// y = f(x). f may use parameters and communicate; it must do the same each time it is called (random numbers are functions of
// their counters, so dropout does). Running statistics belong outside.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace mpigrad
