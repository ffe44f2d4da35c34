#pragma once
// Callbacks of a training, for your own programs.

#include <cstdint>
#include <functional>

#include "models/train/training_log.h"

namespace mpigrad::trainer {

// All are optional. They are called on all ranks.
struct Hooks {
  std::function<void(std::int64_t epoch, std::int64_t steps)>
      after_step{};                                        // after each step of the optimizer: steps so far in the epoch
  std::function<void(const EpochRow& row)> after_epoch{};  // after the validation: losses and metrics
};

}  // namespace mpigrad::trainer
