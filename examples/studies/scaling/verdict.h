#pragma once
// What a study of learning speed-up has found: its table, picture and sentences.

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/scaling/commands.h"
#include "examples/studies/scaling/learning.h"

namespace mpigrad::scaling {

// Fills in the critical batch, or why there is none.
void judge(Study& study);
// Prints the table, or JSON; writes both and a picture into options.out, and the report. `machine` may be null. Of one rank.
void tell(const Study& study, const planner::Machine* machine, const LearnOptions& options);

}  // namespace mpigrad::scaling
