#pragma once
// Everything that a program needs of ops/: mathematics on tensors.

#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_settings.h"
#include "ops/layout_rules.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
