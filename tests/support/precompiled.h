// What most helpers of tests include, precompiled. See framework/precompiled.h.

#include "comm/collectives.h"
#include "framework/jvp.h"
#include "framework/optim/optimizer.h"
#include "framework/precompiled.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pool.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/views.h"
