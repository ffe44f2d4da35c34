#pragma once
// The GPU emulator, a CUDA runtime without a GPU for tests: kernels run on the CPU, thread by thread, with their barriers and
// exchanges. Calls that a GPU refuses are refused. Mistakes that a GPU would not report are errors if the emulator can detect
// them: launches beyond the limits, addresses that the current GPU cannot reach, copies from host memory that is not pinned,
// threads that miss a barrier, and pinned memory that is freed during a copy. New memory is full of NaN.
//
// MPIGRAD_EMULATION, a list separated by commas:
//   late         a stream works only when it is waited for, and then only as far as needed, so that code without the wait reads
//                old data. Threads and blocks run in the opposite order.
//   concurrent   each stream has a thread, which NCCL needs between ranks of one process, because their calls wait for each other
//   devices=N    number of GPUs; default 1
//   memory=N     bytes of memory of each GPU; default 1 GiB
//
// Without the first two all work is done at once.

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

// Records an error of this thread, with a message of the emulator for cudaGetErrorString; returns `code`.
cudaError_t refuse(cudaError_t code, const std::string& why = {});
// Records the failure of a kernel: every later call fails, as on a GPU, until the failure is forgiven (for tests of the
// emulator).
cudaError_t fail_for_good(const std::string& why);
bool failed_for_good();
void forgive();

// ---- memory

int current_device();
// Why a kernel or copy on `device` may not access [from, from + bytes); empty if it may. 0 bytes: checks only the address.
std::string unreachable(const void* from, std::size_t bytes, int device, bool only_device = false);

// ---- streams

bool valid(cudaStream_t stream);
int device_of(cudaStream_t stream);
// Enqueues work on a stream. The work may read and write the pinned memory at [host, host + bytes).
cudaError_t give(cudaStream_t stream, std::function<void()> work, const void* host = nullptr, std::size_t bytes = 0);
// If the stream is captured, adds the work to the capture and returns true. `in_order`: after the last work added in this way, on
// any stream of the capture.
bool give_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order);
// Finishes all enqueued work of a device's streams.
void finish(int device);
// True if an unfinished copy uses this host memory.
bool host_memory_in_use(const void* host, std::size_t bytes);

}  // namespace mpigrad::emulation
