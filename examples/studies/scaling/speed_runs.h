#pragma once
// The runs of `scaling speed`: a trainer's command, once for each grid and turn.

#include <string>

#include "examples/studies/scaling/speed_table.h"

namespace mpigrad::scaling {

// Runs the study's grids and notes what they were measured at, or why not. `launcher` are words with {ranks} and {threads}.
// Returns the signal that has ended it, else 0. UsageError: a launcher that cannot be.
int measure(SpeedStudy& study, const SpeedOptions& options, const std::string& launcher);

}  // namespace mpigrad::scaling
