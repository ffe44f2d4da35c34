#pragma once
// How the vendor's libraries compute on GPUs.

#include <cstdint>

namespace mpigrad {

struct GpuSettings {
  bool tf32 = false;          // float32 products of convolutions and matrices may round their factors to 10 bits, on tensor cores
  bool autotune = false;      // the kernels for a convolution are timed once, at its first call, instead of taken by heuristics
  double tuning_seconds = 2;  // beyond which no further kernel is timed for one convolution
  bool deterministic = false;   // only kernels that give the same bits in every run
  bool reference = false;       // only the simplest kernel for a convolution, slow, against which others are compared
  std::int64_t workspace = -1;  // bytes of scratch memory beyond which another kernel is preferred; -1: 1/16 of the GPU's memory
};

// Of the whole process. What is chosen for a problem is kept for each combination of settings.
GpuSettings gpu_settings();
void set_gpu_settings(const GpuSettings& settings);

// What timing kernels has taken so far, of all ranks that are threads of this process.
struct GpuTuning {
  std::int64_t problems = 0;    // convolutions for which kernels were timed
  std::int64_t kernels = 0;     // that were timed
  std::int64_t remembered = 0;  // convolutions whose kernel an earlier run had timed: see ops/backends/cudnn/tuning_file.h
  double seconds = 0;
};
GpuTuning gpu_tuning();

namespace detail {
void add_tuning(const GpuTuning& more);
}  // namespace detail

}  // namespace mpigrad
