#pragma once
// Includes all public headers that a program needs, of the four folders of the library.

#include "comm/comm.h"
#include "framework/framework.h"
#include "models/models.h"
#include "ops/ops.h"
