#pragma once
// All of framework/ that a program needs: tensors, layouts, ops, the tape, parameters, optimizers.

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/warning.h"
#include "framework/engine/cost.h"
#include "framework/engine/jvp.h"
#include "framework/engine/op.h"
#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
