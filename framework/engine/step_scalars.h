#ifndef MPIGRAD_FRAMEWORK_ENGINE_STEP_SCALARS_H
#define MPIGRAD_FRAMEWORK_ENGINE_STEP_SCALARS_H
// The numbers that change from step to step. Kernels of a captured step, whose arguments stay as they were, read them in the
// GPU's memory (framework/cuda/graph.h).

#include <cstdint>

namespace mpigrad {

struct StepScalars {
  double learning_rate = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t of optimizers that have moments
  std::uint64_t step = 0;                   // what random layers draw from
};

}  // namespace mpigrad

#endif
