#pragma once
// GPU kernels that read and write elements selected by indices.
// They use no tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise;
// 16-bit types are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and
// nothing is added atomically.

#include <cstdint>

#include "ops/kernel/label_mask.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// y[i] = x[index[i]], rows of `length` elements; T is an unsigned integer as wide as the elements. An index outside [0, rows)
// gives zeros and sets a fault.
template <class T>
void take(std::int64_t count, std::int64_t rows, std::int64_t length, const T* x, const std::int64_t* index, T* y, Fault* fault,
          Stream stream);
// y[index[i]] += x[i], in the order of i for each row. `scratch`: scatter_scratch() int64. T also integers and booleans.
inline std::int64_t scatter_scratch(std::int64_t count, std::int64_t rows) { return count + 2 * rows + 1; }
template <class T>
void scatter_add(std::int64_t count, std::int64_t rows, std::int64_t length, const T* x, const std::int64_t* index,
                 std::int64_t* scratch, T* y, Fault* fault, Stream stream);
// y[o, r, i] = sum over k in [first[r], first[r + 1]) of weight[k] x[o, index[k], i]; x: [outer, n, inner], y: [outer, rows,
// inner]
struct SparseLines {
  std::int64_t outer = 0, n = 0, rows = 0, inner = 0;
  const std::int64_t *first = nullptr, *index = nullptr;
  const double* weight = nullptr;
};
template <class T>
void map_lines(const SparseLines& lines, const T* x, T* y, Stream stream);
// y: [count, classes]: one where the class is the label, elsewhere 0. I an integer or bool, T any type.
template <class I, class T>
void one_hot(std::int64_t count, std::int64_t classes, const I* label, T one, T* y, Stream stream);

}  // namespace mpigrad::cuda
