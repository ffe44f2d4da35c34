#pragma once
// How the vendor's libraries compute on GPUs.

#include <cstdint>

namespace mpigrad {

struct GpuSettings {
  bool tf32 = false;      // float32 products of convolutions and matrices may round their factors to 10 bits, on tensor cores
  bool autotune = false;  // the kernels for a convolution are timed once, at its first call, instead of taken by heuristics
  bool deterministic = false;                      // only kernels that give the same bits in every run
  std::int64_t workspace = std::int64_t{1} << 30;  // bytes of scratch memory beyond which another kernel is preferred
};

// Of the whole process. What is chosen for a problem is kept for each combination of settings.
GpuSettings gpu_settings();
void set_gpu_settings(const GpuSettings& settings);

}  // namespace mpigrad
