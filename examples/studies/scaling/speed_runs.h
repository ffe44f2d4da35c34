#pragma once
// The runs of `scaling speed`: a trainer's command, once for each grid and turn.

#include <string>

#include "examples/studies/scaling/speed_table.h"

namespace mpigrad::scaling {

// Runs the study's grids and records their rates, or why there are none. `launcher`: words with {ranks} and {threads}. Returns
// the signal that has ended it, else 0. UsageError: an invalid launcher.
int measure(SpeedStudy& study, const SpeedOptions& options, const std::string& launcher);

}  // namespace mpigrad::scaling
