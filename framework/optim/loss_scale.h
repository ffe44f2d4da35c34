#pragma once
// Dynamic loss scaling for float16, whose smallest number is 6e-8: cotangents of activations are often smaller and would vanish.
// A factor on the loss scales all of them up; the step divides by it.
//
//   LossScale loss_scale({.ranks = world.size(), .agree = all_agree(world)});
//   const auto gradients = tape.gradient(share * loss_scale.value());
//   if (const auto step = loss_scale.unscaled(gradients)) adam.step(gradients, {.scale = step->scale});
//
// bfloat16 has the range of float32 and needs no loss scaling.

#include <cstdint>
#include <functional>
#include <optional>

#include "framework/optim/optimizer.h"

namespace mpigrad {

// Returns whether `mine` is true on all ranks; collective. all_agree() of comm/distributed/optimizer_reductions.h returns one.
using Agreement = std::function<bool(bool mine)>;

struct LossScaleAttributes {
  // The first scale is start x ranks. Each rank contributes a share of the loss, which is the mean over the samples of P ranks,
  // so the cotangents of its activations are 1/P of those on one rank. Too large a start costs one skipped step for each power of
  // 2; too small a start costs grow_after steps for each.
  double start = 65536;
  int ranks = 1;
  std::int64_t grow_after = 2000;  // steps in a row after which the scale doubles
  Agreement agree{};               // none: this rank decides on its own
};

struct LossScaleState {
  double value = 1;             // the scale
  std::int64_t good_steps = 0;  // since it last changed
  std::int64_t skipped = 0;     // steps, since the start
};

class LossScale {
 public:
  explicit LossScale(const LossScaleAttributes& attributes = {});

  // The factor of the loss, a power of 2 if the start and the ranks are; the same on all ranks.
  double value() const { return state_.value; }
  std::int64_t skipped() const { return state_.skipped; }

  // For the gradients of a loss that was multiplied by value(): returns their norm without this factor, and the factor for
  // StepOptions, which removes the scale and clips the norm to max_norm (0: no limit; see clip_global_norm). Returns nothing if a
  // gradient of any rank is not finite: then no rank makes the step, and the scale is halved. Call it once per step, on every
  // rank. One sum of squares gives both; on a GPU the host waits only for this sum. Error: gradients are not finite even at the
  // smallest scale.
  std::optional<Clipping> unscaled(const Gradients& gradients, double max_norm = 0);

  // For checkpoints.
  const LossScaleState& state() const { return state_; }
  void load_state(const LossScaleState& state);

 private:
  LossScaleAttributes attributes_;
  LossScaleState state_;
};

}  // namespace mpigrad
