#pragma once
// Loops in time with a memory limit that the caller chooses: the tape keeps a few states of the loop, called snapshots, and the
// replay computes the other states again (binomial checkpointing, A. Griewank and A. Walther, "Algorithm 799: revolve", ACM TOMS
// 26, 2000).

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

struct StepsOptions {
  // The number of states that are kept at once, the initial one included: 1 ... n. 0 keeps all.
  std::int64_t snapshots = 0;
};

// One step: the state, and the number of the step, 0 ... n - 1 -> the next state, with the types and layouts of the state.
using StepFunction = std::function<Tensors(const Tensors& state, std::int64_t step)>;

// The state after n steps. Without a tape it is a plain loop.
//
//   f      may communicate, and may use parameters; they get gradients. It runs again in the replay, after this call has
//          returned: it captures tensors and numbers by value, or refers to objects that outlive the tape, and computes the same
//          in each run. Random numbers are functions of the step: random_normal(shape, random.child(step))
//   state  tensors of any types and layouts
//
// Values and gradients are, bit for bit, those of a tape that records the plain loop. A parameter that f replicates is replicated
// once for all steps, so that its gradient is reduced once.
//
// Memory: `snapshots` states, and what a tape keeps of one step; the last step is recorded as usual. f is evaluated n times with
// recording and step_evaluations(n, snapshots) times without. If another tape records the replay, as for second derivatives, all
// steps run once more and all of them are recorded, without snapshots.
//
// Errors: n < 0 or snapshots < 0; f returns a number of tensors other than that of the state, or tensors of other types or
// layouts.
Tensors time_steps(const StepFunction& f, const Tensors& state, std::int64_t n, const StepsOptions& options = {});
// The same for a state of one tensor, with the number of the step or without it.
Tensor time_steps(const std::function<Tensor(const Tensor&, std::int64_t)>& f, const Tensor& state, std::int64_t n,
                  const StepsOptions& options = {});
Tensor time_steps(const std::function<Tensor(const Tensor&)>& f, const Tensor& state, std::int64_t n,
                  const StepsOptions& options = {});

// A loop whose steps also return results, such as the values at some points.
struct StepsResult {
  Tensors state;                 // after n steps
  std::vector<Tensors> results;  // of each step
};
// time_steps() for a function that returns the next state and, after it, any number of results of the step. Gradients are equal
// to those of the plain loop to rounding.
StepsResult steps_with_results(const StepFunction& f, const Tensors& state, std::int64_t n, const StepsOptions& options = {});

// The number of evaluations of f that no tape records, those of the forward pass included, for n steps with s snapshots:
// r n - binomial(s + r, s + 1), where r is the least number with n <= binomial(s + r, s). No schedule needs fewer.
// Errors: n < 1 or s < 1.
std::int64_t step_evaluations(std::int64_t n, std::int64_t s);

}  // namespace mpigrad
