#include "tests/emulation/vendor/stream.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

// Of the program, if it emulates CUDA.
extern "C" {
[[gnu::weak]] cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
[[gnu::weak]] cudaError_t cudaStreamSynchronize(cudaStream_t stream);
[[gnu::weak]] cudaError_t cudaGetDevice(int* device);
}
namespace mpigrad::emulation {
[[gnu::weak]] std::string unreachable(const void* from, std::size_t bytes, int device, bool only_device);
}

namespace mpigrad::emulation::vendor {
namespace {

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "[emulation] %s failed with %d inside of an emulated library\n", call, static_cast<int>(code));
  std::abort();
}

void run(void* data) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(data));
  (*work)();
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (cudaLaunchHostFunc == nullptr) return work();
  require(cudaLaunchHostFunc(stream, run, new std::function<void()>(std::move(work))), "cudaLaunchHostFunc");
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
