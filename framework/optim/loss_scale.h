#pragma once
// Dynamic loss scaling for float16, whose smallest number is 6e-8: cotangents of activations are often smaller and would vanish.
// A factor in front of the loss moves all of them up; the step takes it back.
//
//   LossScale loss_scale({.ranks = world.size(), .agree = all_agree(world)});
//   const auto gradients = tape.gradient(share * loss_scale.value());
//   if (const auto step = loss_scale.unscaled(gradients)) adam.step(gradients, {.scale = step->scale});
//
// bfloat16 reaches as far as float32 and needs none.

#include <cstdint>
#include <functional>
#include <optional>

#include "framework/optim/optimizer.h"

namespace mpigrad {

// Whether all ranks say yes; collective. all_agree() of comm/distributed/optimizer_reductions.h makes one.
using Agreement = std::function<bool(bool mine)>;

struct LossScaleAttributes {
  // The first scale is start x ranks. Each rank hands in a share of the loss, the mean over P ranks' samples, so the cotangents
  // of its activations are 1/P of what they are on one rank. Too large a start costs one skipped step for each power of 2, too
  // small a one grow_after steps.
  double start = 65536;
  int ranks = 1;
  std::int64_t grow_after = 2000;  // steps in a row after which the scale doubles
  Agreement agree{};               // none: this rank decides alone
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

  // For the gradients of a loss that was multiplied by value(): the norm that they have without it, and the factor for
  // StepOptions, which takes the scale back and clips that norm to max_norm (0: no limit; see clip_global_norm). None if a
  // gradient of any rank is not finite: no rank makes the step, and the scale is half of what it was. Once a step, on every rank.
  // One sum of squares tells both; on a GPU its result is the only thing that the host waits for. Errors: gradients that are not
  // finite however small the scale.
  std::optional<Clipping> unscaled(const Gradients& gradients, double max_norm = 0);

  // For checkpoints.
  const LossScaleState& state() const { return state_; }
  void load_state(const LossScaleState& state);

 private:
  LossScaleAttributes attributes_;
  LossScaleState state_;
};

}  // namespace mpigrad
