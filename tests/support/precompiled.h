// Precompiled header of test helpers. See framework/precompiled.h.

#include "comm/collectives/collectives.h"
#include "framework/engine/jvp.h"
#include "framework/optim/optimizer.h"
#include "framework/precompiled.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
