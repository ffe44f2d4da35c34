#pragma once
// The part of the CUDA runtime that the emulated libraries need: work in the order of a stream. They use the runtime of the
// program that loads them; without a runtime all work is done at once.

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace mpigrad::emulation::vendor {

// Runs the work when the stream reaches it. The work may not call CUDA.
void enqueue(cudaStream_t stream, std::function<void()> work);
// If the stream is captured: adds work that runs at every repetition, with `in_order` after the last work added in this way. It
// may wait for other ranks.
bool enqueue_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order);
// Returns when the stream has finished all enqueued work.
void wait_for(cudaStream_t stream);
// Why the current GPU cannot reach [from, from + bytes); empty if it can, or without a runtime.
std::string unreachable(const void* from, std::int64_t bytes);

}  // namespace mpigrad::emulation::vendor
