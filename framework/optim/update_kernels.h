#pragma once
// Kernels of an optimizer's pass, as functions of pointers.

#include <cstdint>

#include "framework/engine/step_scalars.h"
#include "framework/optim/update.h"

namespace mpigrad::cuda {

using Stream = void*;

// What a block of an optimizer's pass looks up: segments by the number of their first block.
struct UpdateEntry {
  UpdateSegment segment;
  std::int64_t first_block = 0;
  std::int64_t number = 0;  // of the segment, those without elements included
};
constexpr std::int64_t update_block = 4096;  // elements of a block
// T float or double; `entries` are on the GPU. With `live`, which is there, too, rates of segments are factors of the learning
// rate, which is found there with the corrections of the rule.
template <class T, class Rule>
void update_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                   const StepScalars* live, Stream stream);
// One double for each block, whose gradients are squared and summed.
template <class T>
void squares_of_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, double* partial, Stream stream);
// Two doubles for each block: squares of weights, and of the steps that trust ratios scale.
template <class T, class Rule>
void measure_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                    const StepScalars* live, double* partial, Stream stream);
// Their sums for each segment, in a fixed order.
void sum_measures(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const double* partial, double* squares,
                  Stream stream);
// The sum of partial[0, count) in a fixed order.
void sum_partial(const double* partial, std::int64_t count, double* total, Stream stream);
// *factor = scale min(1, max_norm / (|scale| sqrt(*squares) + 1e-6)); NaN stays NaN.
void clip(const double* squares, double scale, double max_norm, double* factor, Stream stream);

}  // namespace mpigrad::cuda
