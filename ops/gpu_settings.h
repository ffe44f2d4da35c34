#pragma once
// Settings of the vendor's libraries on GPUs.

#include <cstdint>

namespace mpigrad {

struct GpuSettings {
  bool tf32 = false;            // float32 convolutions and matrix products may round factors to 10 bits of mantissa, on tensor
                                // cores
  bool autotune = false;        // time the kernels for a convolution once, at its first call, instead of choosing by heuristics
  double tuning_seconds = 2;    // time limit for one convolution; after it no further kernel is timed
  bool deterministic = false;   // use only kernels that give the same bits in every run
  bool reference = false;       // use only the simplest, slow kernel for a convolution, as a reference for others
  std::int64_t workspace = -1;  // bytes of scratch memory above which another kernel is preferred; -1: 1/16 of the GPU's memory
};

// The settings apply to the whole process. The kernel chosen for a problem is kept separately for each combination of settings.
GpuSettings gpu_settings();
void set_gpu_settings(const GpuSettings& settings);

// Work spent on timing kernels so far, summed over all ranks that are threads of this process.
struct GpuTuning {
  std::int64_t problems = 0;    // convolutions for which kernels were timed
  std::int64_t kernels = 0;     // kernels timed
  std::int64_t remembered = 0;  // convolutions whose kernel an earlier run had timed: see ops/backends/cudnn/tuning_file.h
  double seconds = 0;
};
GpuTuning gpu_tuning();

namespace detail {
void add_tuning(const GpuTuning& more);
}  // namespace detail

}  // namespace mpigrad
