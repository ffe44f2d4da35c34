#pragma once
// The time of steps on machines that are described in files: what `plan simulate` says of data-parallel training.

#include <cstdint>
#include <string>

#include "examples/scaling/task.h"
#include "models/planner/machine/machine.h"

namespace mpigrad::scaling {

struct StepSeconds {
  double step = 0;     // all of it
  double waiting = 0;  // of that, on average of all ranks, for collectives
};

// Of `workers` ranks, each with `batch` samples a step, whose gradients are reduced in every step: three steps of all ranks,
// simulated. Errors: more workers than the machine has ranks.
StepSeconds simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch);

// The same where weights are averaged every `every` steps, or swapped with one partner: the steps between have nothing to wait
// for. Of all-reduces the waiting is divided; a partner's weights are one message through the outermost level that is in use.
double simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch,
                      const std::string& synchronisation, std::int64_t every);

}  // namespace mpigrad::scaling
