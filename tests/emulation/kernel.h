#pragma once
// How kernels run on a CPU: blocks one after the other, the threads of a block as fibers of the thread that runs them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

namespace mpigrad::emulation {

// A kernel with its arguments, as they were at the launch.
struct KernelCall {
  void (*run)(const void* arguments) = nullptr;  // as one thread
  std::shared_ptr<const void> arguments;
  std::vector<const void*> pointers;  // those among the arguments
};

// Gives a kernel to a stream; refuses what a GPU refuses.
cudaError_t launch(const cudaLaunchConfig_t& configuration, KernelCall call);

// Runs all threads, now. Empty, or what was wrong: threads that wait for others which have left or wait elsewhere. `backwards`
// begins with the last block and the last thread, so that what depends on their order comes out differently.
std::string run_kernel(dim3 grid, dim3 block, const KernelCall& call, bool backwards);

// ---- for threads of a kernel

// All threads of the block.
void synchronise_block();
// Lanes named in `mask` each give `bits` and get those of lane `source`, or nothing for -1; all do the same kind of thing.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, int kind, int source);
// The same, of all lanes.
void gather(unsigned mask, std::uint64_t bits, int kind, std::uint64_t (&all)[32]);
int lane();

}  // namespace mpigrad::emulation
