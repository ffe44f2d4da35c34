#pragma once
// A callback after the steps of optimizers, used by comm/distributed/same_parameters.h to compare parameters between ranks.

#include <cstdint>

#include "framework/engine/parameter.h"

namespace mpigrad {

// Called after every step that has changed parameters, on the optimizer's thread; `steps` counts that step.
using StepHook = void (*)(const Parameters& parameters, std::int64_t steps);
// Sets the hook of the process, for all threads, from now on.
void set_step_hook(StepHook hook);

}  // namespace mpigrad
