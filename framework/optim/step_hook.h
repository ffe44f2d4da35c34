#pragma once
// Who looks at parameters after a step of an optimizer, though this folder knows nothing of ranks:
// comm/distributed/same_parameters.h.

#include <cstdint>

#include "framework/engine/parameter.h"

namespace mpigrad {

// Called after every step that has changed parameters, on the optimizer's thread; `steps` counts that step.
using StepHook = void (*)(const Parameters& parameters, std::int64_t steps);
// One for the process, from now on, for all threads.
void set_step_hook(StepHook hook);

}  // namespace mpigrad
