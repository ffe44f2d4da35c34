#pragma once
// Time measured by the GPU's clock. In builds with CUDA only.

#include "framework/cuda/cuda.h"

namespace mpigrad::cuda {

// Measures the time from one point of a stream to a later one.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void begin(Stream stream);
  void end(Stream stream);
  double seconds() const;  // the host waits for the end

 private:
  void *begin_ = nullptr, *end_ = nullptr;  // cudaEvent_t
};

}  // namespace mpigrad::cuda
