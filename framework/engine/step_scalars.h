#ifndef MPIGRAD_FRAMEWORK_ENGINE_STEP_SCALARS_H
#define MPIGRAD_FRAMEWORK_ENGINE_STEP_SCALARS_H
// Numbers that change from step to step. Kernels of a captured step, whose arguments are fixed, read them from GPU memory
// (framework/cuda/graph.h).

#include <cstdint>

namespace mpigrad {

struct StepScalars {
  double learning_rate = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t of optimizers that have moments
  std::uint64_t step = 0;                   // counter for the random numbers of layers
};

}  // namespace mpigrad

#endif
