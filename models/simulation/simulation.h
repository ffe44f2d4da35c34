#pragma once
// Simulations on the tape: loops in time, solutions of equations.

#include "models/simulation/global_dot.h"
#include "models/simulation/implicit.h"
#include "models/simulation/steps.h"
