#pragma once
// The time of steps on machines described in files: data-parallel training as `plan simulate` computes it.

#include <cstdint>
#include <string>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/scaling/tasks/task.h"

namespace mpigrad::scaling {

// Seconds of a step of `workers` ranks, each with `batch` samples, from three simulated steps. "gradients": all ranks reduce
// their gradients in every step, overlapped with computation if the machine can. "weights" and "gossip": a rank's step without
// communication, and every `every` steps a blocking all-reduce of weights and running statistics among all ranks, or a message
// with them to one partner through the outermost level in use. Errors: more workers than the machine has ranks.
double simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch,
                      const std::string& synchronisation, std::int64_t every);

}  // namespace mpigrad::scaling
