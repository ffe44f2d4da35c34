#include "ops/gpu_settings.h"

#include <mutex>

namespace mpigrad {
namespace {

std::mutex mutex;
GpuSettings settings;
GpuTuning tuning;

}  // namespace

GpuSettings gpu_settings() {
  const std::lock_guard lock(mutex);
  return settings;
}

void set_gpu_settings(const GpuSettings& value) {
  const std::lock_guard lock(mutex);
  settings = value;
}

GpuTuning gpu_tuning() {
  const std::lock_guard lock(mutex);
  return tuning;
}

void detail::add_tuning(const GpuTuning& more) {
  const std::lock_guard lock(mutex);
  tuning.problems += more.problems, tuning.kernels += more.kernels, tuning.remembered += more.remembered;
  tuning.seconds += more.seconds;
}

}  // namespace mpigrad
