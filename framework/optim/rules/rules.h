#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_RULES_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_RULES_H
// All optimizers: these lists generate the loops, kernels, classes and names on command lines.

#include "framework/optim/rules/adam.h"
#include "framework/optim/rules/lamb.h"
#include "framework/optim/rules/lars.h"
#include "framework/optim/rules/rmsprop.h"
#include "framework/optim/rules/sgd.h"

#define MPIGRAD_ONE_PASS_RULES(X) X(SGDRule) X(AdamRule) X(AdamWRule) X(RmspropRule)
#define MPIGRAD_TRUST_RATIO_RULES(X) X(LarsRule) X(LambRule)
#define MPIGRAD_OPTIMIZER_RULES(X) MPIGRAD_ONE_PASS_RULES(X) MPIGRAD_TRUST_RATIO_RULES(X)

#endif
