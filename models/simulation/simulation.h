#pragma once
// Simulations on the tape: loops in time, solutions of equations, finite differences, minimisation.

#include "models/simulation/fields.h"
#include "models/simulation/global_dot.h"
#include "models/simulation/implicit.h"
#include "models/simulation/minimise.h"
#include "models/simulation/power_spectrum.h"
#include "models/simulation/steps.h"
