#include "ops/gpu_settings.h"

#include <mutex>

namespace mpigrad {
namespace {

std::mutex mutex;
GpuSettings settings;

}  // namespace

GpuSettings gpu_settings() {
  const std::lock_guard lock(mutex);
  return settings;
}

void set_gpu_settings(const GpuSettings& value) {
  const std::lock_guard lock(mutex);
  settings = value;
}

}  // namespace mpigrad
