#pragma once
// Kernels of the foundation itself, as functions of pointers.

#include <cstdint>

#include "framework/optim/step_scalars.h"
#include "framework/optim/update.h"
#include "framework/tensor/strided.h"

namespace mpigrad::cuda {

using Stream = void*;

// y[i] = value; T is one of the unsigned integers.
template <class T>
void fill_elements(T* y, T value, std::int64_t count, Stream stream);
// Elements of `bytes` bytes, 1 to 16; the first array of the walk is `to`.
template <int bytes>
void move_elements(void* to, const void* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream);
// y[i] = table[x[i]]; X std::uint8_t or std::uint16_t, T float or double; the table has an element for each value of X.
template <class X, class T>
void look_up_elements(const X* x, const T* table, T* y, std::int64_t count, Stream stream);
template <class T>
void add_elements(T* to, const T* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream);

// What a block of an optimizer's pass looks up: segments by the number of their first block.
struct UpdateEntry {
  UpdateSegment segment;
  std::int64_t first_block = 0;
  std::int64_t number = 0;  // of the segment, those without elements included
};
constexpr std::int64_t update_block = 4096;  // elements of a block
// A rule whose rates are times trust ratios; squares of weights and step of each segment are on the GPU.
template <class Rule>
struct WithRatio {
  Rule rule;
  const double* squares = nullptr;
};
// T float or double; `entries` are on the GPU. With `live`, which is there, too, rates of segments are factors of the learning
// rate, which is found there with the corrections of the rule.
template <class T, class Rule>
void update_elements(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const Rule& rule,
                     const StepScalars* live, Stream stream);
// One double for each block, whose gradients are squared and summed.
template <class T>
void squares_of_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, double* partial, Stream stream);
// Two doubles for each block: squares of weights, and of the steps that LARS and LAMB scale.
template <class T, class Rule>
void measure_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const Rule& rule,
                    const StepScalars* live, double* partial, Stream stream);
// Their sums for each segment, in a fixed order.
void sum_measures(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const double* partial, double* squares,
                  Stream stream);
// The sum of partial[0, count) in a fixed order.
void sum_partial(const double* partial, std::int64_t count, double* total, Stream stream);
// *factor = scale min(1, max_norm / (|scale| sqrt(*squares) + 1e-6)); NaN stays NaN.
void clip(const double* squares, double scale, double max_norm, double* factor, Stream stream);

// *to = scalars, which travel as an argument.
void set_scalars(StepScalars* to, const StepScalars& scalars, Stream stream);

}  // namespace mpigrad::cuda
