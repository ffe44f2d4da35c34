#pragma once
// The result of a study of learning speed-up: table, picture and sentences.

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/scaling/commands.h"
#include "examples/studies/scaling/learning.h"

namespace mpigrad::scaling {

// Sets the critical batch, or the reason why there is none.
void judge(Study& study);
// Prints the table, or JSON; writes both and a picture into options.out, and the report. `machine` may be null. On one rank.
void tell(const Study& study, const planner::Machine* machine, const LearnOptions& options);

}  // namespace mpigrad::scaling
