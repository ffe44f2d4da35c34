#pragma once
// Kernels of optimizers, as functions of pointers.

#include <cstdint>

#include "framework/engine/step_scalars.h"
#include "framework/optim/update.h"

namespace mpigrad::cuda {

using Stream = void*;

// A segment and the number of its first block; blocks of an optimizer's pass search the list of entries for their segment.
struct UpdateEntry {
  UpdateSegment segment;
  std::int64_t first_block = 0;
  std::int64_t number = 0;  // of the segment, counting segments without elements
};
constexpr std::int64_t update_block = 4096;  // elements per block
// T float or double; `entries` are on the GPU. With `live`, which is also on the GPU, rates of segments are factors of the
// learning rate in `live`, which also holds the corrections of the rule.
template <class T, class Rule>
void update_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                   const StepScalars* live, Stream stream);
// One double for each block: the sum of its squared gradients.
template <class T>
void squares_of_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, double* partial, Stream stream);
// Two doubles for each block: squares of weights, and of the steps that trust ratios scale.
template <class T, class Rule>
void measure_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                    const StepScalars* live, double* partial, Stream stream);
// Sums the results of measure_blocks() for each segment, in a fixed order.
void sum_measures(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const double* partial, double* squares,
                  Stream stream);
// The sum of partial[0, count) in a fixed order.
void sum_partial(const double* partial, std::int64_t count, double* total, Stream stream);
// *factor = scale min(1, max_norm / (|scale| sqrt(*squares) + 1e-6)); NaN stays NaN.
void clip(const double* squares, double scale, double max_norm, double* factor, Stream stream);

}  // namespace mpigrad::cuda
