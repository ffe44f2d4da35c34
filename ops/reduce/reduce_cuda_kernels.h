#pragma once
// Reductions on a GPU, in two stages; the first computes `chunks` partial results per output.
// They use no tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise;
// 16-bit types are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and
// nothing is added atomically.

#include <cstdint>

#include "framework/tensor/strided.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

struct ReductionWalk {
  StridedWalk<1> kept, reduced;  // offsets in x of outputs, and of the elements of one output
  std::int64_t outputs = 0, count = 0, chunks = 1, chunk = 0;
  bool kept_is_contiguous = false;  // consecutive outputs are consecutive in x
  bool reduced_is_contiguous = false;
};
// T also int64. Accumulates in double, or int64. `partial`: [chunks, outputs] of the accumulation type, or null for one chunk.
template <class T>
void sum(const ReductionWalk& reduction, const T* x, void* partial, T* y, Stream stream);
// T also integers but not booleans. `partial` has the type that T is computed with.
template <class T>
void extremum(const ReductionWalk& reduction, bool largest, const T* x, void* partial, T* y, Stream stream);
// x: [before, n, behind] -> y: [before, behind], the first maximum or the first NaN. T also integers and booleans.
template <class T>
void argmax(std::int64_t before, std::int64_t n, std::int64_t behind, const T* x, std::int64_t* y, Stream stream);

}  // namespace mpigrad::cuda
