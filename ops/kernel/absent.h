#pragma once
// The definition of an op whose kernel is missing in a build. In a build without CUDA it is never called, as no tensor is on a
// GPU; in a build with CUDA but without cuDNN it reports this as an error.

#include "framework/engine/op.h"

#define MPIGRAD_ABSENT(Op) \
  void Op::run(Cuda, Inputs, Outputs) const { detail::refuse_cuda(traits().name); }
