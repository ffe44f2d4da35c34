#pragma once
// Everything that a program needs: the lists of the four folders of the library.

#include "comm/comm.h"
#include "framework/framework.h"
#include "models/models.h"
#include "ops/ops.h"
