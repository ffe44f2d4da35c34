#pragma once
// Runs kernels on a CPU: blocks one after the other, the threads of a block as fibers of one host thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

namespace mpigrad::emulation {

// A kernel with copies of its arguments at the launch.
struct KernelCall {
  void (*run)(const void* arguments) = nullptr;  // runs one thread
  std::shared_ptr<const void> arguments;
  std::vector<const void*> pointers;  // the pointers among the arguments
};

// Enqueues a kernel on a stream; refuses the launches that a GPU refuses.
cudaError_t launch(const cudaLaunchConfig_t& configuration, KernelCall call);

// Runs all threads now. Returns an empty text, or the error: threads that wait for others which have ended or wait elsewhere.
// `backwards` begins with the last block and the last thread, so that results that depend on their order change.
std::string run_kernel(dim3 grid, dim3 block, const KernelCall& call, bool backwards);

// ---- functions for threads of a kernel

// Waits for all threads of the block.
void synchronise_block();
// Each lane in `mask` contributes `bits` and gets those of lane `source`, or nothing for -1; all lanes must use the same kind of
// exchange.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, int kind, int source);
// Like exchange, but returns the bits of all lanes.
void gather(unsigned mask, std::uint64_t bits, int kind, std::uint64_t (&all)[32]);
int lane();

}  // namespace mpigrad::emulation
