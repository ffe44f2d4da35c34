#pragma once
// What a build without the kernel of an op defines in its place. No use is reached in a build without CUDA, where no tensor is on
// a GPU; in a build with CUDA but without cuDNN it says so.

#define MPIGRAD_ABSENT(Op) \
  void Op::run(Cuda, Inputs, Outputs) const { detail::refuse_cuda(traits().name); }
