#pragma once
// The formula of running averages for one channel, one definition for CPU and CUDA; each product and sum is rounded.

#include "framework/base/host_device.h"

namespace mpigrad {

template <class T>
struct RunningAverage {
  T keep, take, correction;
  RunningAverage(double momentum, double of_variance)
      : keep(static_cast<T>(momentum)), take(static_cast<T>(1 - momentum)), correction(static_cast<T>(of_variance)) {}
  MPIGRAD_HOST_DEVICE T mean(T running, T batch) const { return keep * running + take * batch; }
  MPIGRAD_HOST_DEVICE T variance(T running, T batch) const { return keep * running + take * (correction * batch); }
};

}  // namespace mpigrad
