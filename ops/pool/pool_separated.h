#pragma once
// Average pooling in two steps (rows of depth and height, then width): any problem, float and double.

#include "ops/kernel/problems.h"

namespace mpigrad::cpu::separated {

template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);

}  // namespace mpigrad::cpu::separated
