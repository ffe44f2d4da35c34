#pragma once
// The time of steps on machines that are described in files: what `plan simulate` says of data-parallel training.

#include <cstdint>
#include <string>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/scaling/tasks/task.h"

namespace mpigrad::scaling {

// Seconds of a step of `workers` ranks, each with `batch` samples, by three simulated steps. "gradients": all ranks reduce their
// gradients in every step, beside computing where the machine can. "weights" and "gossip": a rank's step by itself, and every
// `every` steps a blocking all-reduce of weights and running statistics among all, or a message of them to one partner through
// the outermost level that is in use. Errors: more workers than the machine has ranks.
double simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch,
                      const std::string& synchronisation, std::int64_t every);

}  // namespace mpigrad::scaling
