#pragma once
// When a training writes checkpoints, which of them stay, and when it ends to be gone on from.

#include <chrono>
#include <cstdint>
#include <optional>

#include "models/train/checkpoint.h"
#include "models/train/restart/interruption.h"
#include "models/train/trainer.h"

namespace mpigrad {

// Of one training; all calls are collective.
class Checkpoints {
 public:
  Checkpoints(nn::Module& net, Optimizer& optimizer, const Communicator& world, const TrainerHooks& hooks,
              const TrainerOptions& options, TrainerResult& result);

  // Whether there may be any between the steps of an epoch.
  bool within_epochs() const { return o_.checkpoint_steps > 0 || asks(); }
  // Between two steps, of which `step` are behind: whether write() is to be called.
  bool due(std::int64_t step);
  // Whether training ends.
  bool write(CheckpointInfo info);
  // Behind an epoch, with as many steps: writes if that is due. Whether training ends.
  bool after_epoch(const CheckpointInfo& info, std::int64_t step);
  // Weights of the best epoch so far.
  void write_best(const CheckpointInfo& info);

 private:
  using Clock = std::chrono::steady_clock;
  enum Wish : std::int64_t { nothing, checkpoint, limit, signal };

  bool asks() const { return signals_ || o_.time_limit > 0 || o_.checkpoint_seconds > 0; }
  Wish wish() const;
  void save(CheckpointInfo info);
  bool ends();

  nn::Module& net_;
  Optimizer& optimizer_;
  const Communicator& world_;
  const TrainerHooks& hooks_;
  const TrainerOptions& o_;
  TrainerResult& result_;
  LargestWish wishes_;
  std::optional<NotedSignals> signals_;
  std::int64_t wanted_ = nothing;
  Clock::time_point saved_ = Clock::now();
  std::optional<Clock::time_point> last_step_;
  double longest_step_ = 0;  // seconds
};

}  // namespace mpigrad
