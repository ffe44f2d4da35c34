#include "framework/optim/loss_scale.h"

#include <cmath>

namespace mpigrad {
namespace {

// The smallest scale. Gradients that overflow at this scale overflow in the forward pass, or are NaN at any scale.
constexpr double smallest = 0x1p-24;

}  // namespace

LossScale::LossScale(const LossScaleAttributes& a) : attributes_(a) {
  require(std::isfinite(a.start) && a.start >= smallest && a.ranks >= 1,
          "[loss scale] the start is positive and there is at least one rank, got {} and {}", a.start, a.ranks);
  require(a.grow_after > 0, "[loss scale] it grows after at least one step, got {}", a.grow_after);
  state_.value = a.start * a.ranks;
}

std::optional<Clipping> LossScale::unscaled(const Gradients& gradients, double max_norm) {
  require(max_norm >= 0, "[loss scale] the largest norm is not negative, got {}", max_norm);
  // Squares of float32 cannot overflow in double: the sum is finite if and only if all elements are.
  const double squares = squared_norm(gradients);
  const bool finite = std::isfinite(squares);
  if (!(attributes_.agree ? attributes_.agree(finite) : finite)) {
    require(state_.value / 2 >= smallest,
            "[loss scale] the gradients are not finite, at a scale of {} as at any larger one: the network or its loss overflows",
            state_.value);
    state_ = {.value = state_.value / 2, .good_steps = 0, .skipped = state_.skipped + 1};
    return std::nullopt;
  }
  const double norm = std::sqrt(squares) / state_.value;
  Clipping result{.norm = norm, .scale = (max_norm > 0 ? clip_scale(norm, max_norm) : 1) / state_.value};
  // Near the maximum of float32 a larger scale would make the loss infinite.
  if (++state_.good_steps >= attributes_.grow_after) state_.good_steps = 0, state_.value *= state_.value < 0x1p96 ? 2 : 1;
  return result;
}

void LossScale::load_state(const LossScaleState& state) {
  require(std::isfinite(state.value) && state.value >= smallest && state.good_steps >= 0 && state.skipped >= 0,
          "[loss scale] not a valid state: a scale of {} with {} good and {} skipped steps", state.value, state.good_steps,
          state.skipped);
  state_ = state;
}

}  // namespace mpigrad
