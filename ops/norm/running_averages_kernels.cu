// Running averages of mean and variance in one pass.

#include "ops/norm/running_averages_cuda.h"

#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {
namespace {

template <class T>
__global__ void running_kernel(std::int64_t channels, RunningStatistics<T> at, RunningAverage<T> average) {
  for (std::int64_t c = first_index(); c < channels; c += grid_stride()) {
    at.to_mean[c] = average.mean(at.mean[c], at.batch_mean[c]);
    at.to_variance[c] = average.variance(at.variance[c], at.batch_variance[c]);
  }
}

}  // namespace

template <class T>
void running_averages(std::int64_t channels, const RunningStatistics<T>& at, const RunningAverage<T>& average, void* stream) {
  if (channels == 0) return;
  launch("running_averages", running_kernel<T>, blocks_for(channels), block_threads, stream, channels, at, average);
}
template void running_averages(std::int64_t, const RunningStatistics<float>&, const RunningAverage<float>&, void*);
template void running_averages(std::int64_t, const RunningStatistics<double>&, const RunningAverage<double>&, void*);

}  // namespace mpigrad::cuda
