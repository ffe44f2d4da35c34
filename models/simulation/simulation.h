#pragma once
// Simulations on the tape: loops in time.

#include "models/simulation/steps.h"
