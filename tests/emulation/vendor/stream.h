#pragma once
// What the emulated libraries need of the runtime below them: work in the order of a stream. They find the runtime of the program
// that loads them; without one everything is done at once.

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace mpigrad::emulation::vendor {

// When the stream comes to it. It calls nothing of CUDA.
void enqueue(cudaStream_t stream, std::function<void()> work);
// If the stream is captured: work that is done whenever that is repeated, `in_order` behind what was last given so. It may wait
// for other ranks.
bool enqueue_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order);
// Returns when the stream has done what it has been given.
void wait_for(cudaStream_t stream);
// Why the current GPU cannot reach [from, from + bytes); empty if it can, or if nobody knows.
std::string unreachable(const void* from, std::int64_t bytes);

}  // namespace mpigrad::emulation::vendor
