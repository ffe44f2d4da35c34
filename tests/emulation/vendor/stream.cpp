#include "tests/emulation/vendor/stream.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

// Defined by the program, if it emulates CUDA.
extern "C" {
[[gnu::weak]] cudaError_t cudaStreamSynchronize(cudaStream_t stream);
[[gnu::weak]] cudaError_t cudaGetDevice(int* device);
}
namespace mpigrad::emulation {
[[gnu::weak]] bool valid(cudaStream_t stream);
// May run the work several times, if the stream is captured.
[[gnu::weak]] cudaError_t give(cudaStream_t stream, std::function<void()> work, const void* host, std::size_t bytes);
[[gnu::weak]] bool give_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order);
[[gnu::weak]] std::string unreachable(const void* from, std::size_t bytes, int device, bool only_device);
}  // namespace mpigrad::emulation

namespace mpigrad::emulation::vendor {
namespace {

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "[emulation] %s failed with %d inside of an emulated library\n", call, static_cast<int>(code));
  std::abort();
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (emulation::give == nullptr) return work();
  require(emulation::valid(stream) ? emulation::give(stream, std::move(work), nullptr, 0) : cudaErrorInvalidResourceHandle,
          "giving work to a stream");
}

bool enqueue_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order) {
  if (emulation::give_if_captured == nullptr) return false;
  require(emulation::valid(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle, "giving work to a stream");
  return emulation::give_if_captured(stream, work, in_order);
}

void wait_for(cudaStream_t stream) {
  if (cudaStreamSynchronize != nullptr) require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

std::string unreachable(const void* from, std::int64_t bytes) {
  if (cudaGetDevice == nullptr || emulation::unreachable == nullptr || bytes <= 0) return {};
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  return emulation::unreachable(from, static_cast<std::size_t>(bytes), device, false);
}

}  // namespace mpigrad::emulation::vendor
