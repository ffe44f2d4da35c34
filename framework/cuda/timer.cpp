#include "framework/cuda/timer.h"

#include "framework/cuda/check.h"

namespace mpigrad::cuda {
namespace {

cudaEvent_t event(void* opaque) { return static_cast<cudaEvent_t>(opaque); }
void* made() {
  cudaEvent_t result{};
  MPIGRAD_CUDA(cudaEventCreate(&result));
  return result;
}

}  // namespace

Timer::Timer() {
  static_cast<void>(compute_stream());  // this thread's GPU
  begin_ = made();
  end_ = made();
}
Timer::~Timer() {
  static_cast<void>(cudaEventDestroy(event(begin_)));
  static_cast<void>(cudaEventDestroy(event(end_)));
}
void Timer::begin(Stream stream) { MPIGRAD_CUDA(cudaEventRecord(event(begin_), native(stream))); }
void Timer::end(Stream stream) { MPIGRAD_CUDA(cudaEventRecord(event(end_), native(stream))); }
double Timer::seconds() const {
  MPIGRAD_CUDA(cudaEventSynchronize(event(end_)));
  float milliseconds = 0;
  MPIGRAD_CUDA(cudaEventElapsedTime(&milliseconds, event(begin_), event(end_)));
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace mpigrad::cuda
