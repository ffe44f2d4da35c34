#pragma once
// A CUDA runtime without a GPU, a test aid: kernels run on the CPU, thread by thread, with the barriers and exchanges that they
// ask for. What a GPU refuses is refused, and what a GPU would do wrong without a word is an error where it can be seen:
// launches beyond its limits, addresses that the current GPU cannot reach, copies from host memory that is not pinned, threads
// that miss a barrier, and pinned memory that is freed while a copy of it is under way. New memory is full of NaN.
//
// MPIGRAD_EMULATION, a list separated by commas:
//   late         a stream does nothing until somebody waits for it, and then no more than that: who forgets to wait reads what is
//                not there yet. Threads and blocks run in the opposite order.
//   concurrent   each stream has a thread, as NCCL needs it between ranks of one process, whose calls wait for each other
//   devices=N    1 if not given
//   memory=N     bytes of each, 1 GiB if not given
//
// Without the first two all is done at once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/emulation/include/cuda_runtime_api.h"

namespace mpigrad::emulation {

enum class Mode { at_once, late, concurrent };
struct Settings {
  Mode mode = Mode::at_once;
  int devices = 1;
  std::size_t memory = std::size_t{1} << 30;
};
const Settings& settings();

// Records an error of this thread, with words of our own for cudaGetErrorString; `code` itself.
cudaError_t refuse(cudaError_t code, const std::string& why = {});
// A kernel failed: every call fails from now on, as on a GPU; until forgiven, which is for tests of the emulation.
cudaError_t fail_for_good(const std::string& why);
bool failed_for_good();
void forgive();

// ---- memory

int current_device();
// Why a kernel or copy on `device` may not touch [from, from + bytes); empty if it may. No bytes: the address alone.
std::string unreachable(const void* from, std::size_t bytes, int device, bool only_device = false);

// ---- streams

bool valid(cudaStream_t stream);
int device_of(cudaStream_t stream);
// Gives work to a stream. It may read and write the pinned memory at [host, host + bytes).
cudaError_t give(cudaStream_t stream, std::function<void()> work, const void* host = nullptr, std::size_t bytes = 0);
// Whether the stream is captured, which then has the work; `in_order`: behind what was last given so, on whatever stream of the
// capture.
bool give_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order);
// Does all that the streams of a device have been given.
void finish(int device);
// Whether a copy that is not done uses this host memory.
bool host_memory_in_use(const void* host, std::size_t bytes);

}  // namespace mpigrad::emulation
