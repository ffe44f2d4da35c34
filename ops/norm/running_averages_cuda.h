#pragma once
// The kernel of ops/norm/running_averages.h; T is float or double.

#include <cstdint>

#include "ops/norm/running_average.h"

namespace mpigrad::cuda {

// All arrays are [channels]; the results may overwrite the running averages.
template <class T>
struct RunningStatistics {
  const T *mean, *variance, *batch_mean, *batch_variance;
  T *to_mean, *to_variance;
};
template <class T>
void running_averages(std::int64_t channels, const RunningStatistics<T>& at, const RunningAverage<T>& average, void* stream);

}  // namespace mpigrad::cuda
