#pragma once
// CUDA kernels as functions of shapes, pointers and a stream; they know no tensors and no tapes. Included inside ops only. T is
// any floating-point type of the library unless said otherwise; 16-bit types are computed with as float32 and rounded once. All
// results are the same in every run: sums have a fixed order and nothing is added atomically.

#include <cstdint>

#include "framework/engine/step_scalars.h"
#include "framework/tensor/random.h"
#include "framework/tensor/strided.h"

namespace mpigrad::cuda {

using Stream = void*;
struct Fault;

// ---- elementwise (elementwise/{unary,binary,compare}_kernels.cu); F is a function of ops/elementwise/scalar.h

template <class F, class T>
void unary(const F& f, std::int64_t n, const T* x, T* y, Stream stream);
// All of one shape.
template <class F, class T>
void binary(const F& f, std::int64_t n, const T* a, const T* b, T* y, Stream stream);
// Arrays of the walk: a, b; y is contiguous. T also integers and booleans.
template <class F, class T>
void binary_strided(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, T* y, Stream stream);
template <class F, class T>
void compare(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, bool* y, Stream stream);
// y = c ? a : b; T an unsigned integer as wide as the elements; arrays of the walk: c, a, b.
template <class T>
void where(const StridedWalk<3>& walk, std::int64_t n, const bool* c, const T* a, const T* b, T* y, Stream stream);
template <class From, class To>
void cast(std::int64_t n, const From* x, To* y, Stream stream);

// ---- reductions (reduce/reduce_kernels.cu): two stages, the first into `chunks` partial results for each output

struct ReductionWalk {
  StridedWalk<1> kept, reduced;  // offsets in x of outputs, and of what belongs to one output
  std::int64_t outputs = 0, count = 0, chunks = 1, chunk = 0;
  bool kept_is_contiguous = false;  // outputs that follow one another do so in x
  bool reduced_is_contiguous = false;
};
// Accumulates in double. `partial`: [chunks, outputs] doubles, or null for one chunk.
template <class T>
void sum(const ReductionWalk& reduction, const T* x, double* partial, T* y, Stream stream);
// T also integers but not booleans. `partial` as wide as what T is computed with.
template <class T>
void extremum(const ReductionWalk& reduction, bool largest, const T* x, void* partial, T* y, Stream stream);
// x: [before, n, behind] -> y: [before, behind], the first maximum or the first NaN. T also integers and booleans.
template <class T>
void argmax(std::int64_t before, std::int64_t n, std::int64_t behind, const T* x, std::int64_t* y, Stream stream);

// ---- rows (softmax/softmax_kernels.cu): x, y: [rows, n]; sums in double, shifted by the row's maximum

template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y, bool logarithm, Stream stream);

// ---- channels last (norm/{channel_norm,channel_dots}_kernels.cu): x: [groups, rows, channels], what there is per channel:
// [groups, channels]; sums in double. S, of what there is per channel, is what T is computed in: float for 16-bit types, else T.
// At most 65,535 groups.

// At most so many blocks of rows have sums of their own, one after the other in what the functions below need as scratch.
std::int64_t channel_blocks(std::int64_t rows, std::int64_t channels);
inline std::int64_t channel_scratch(std::int64_t groups, std::int64_t rows, std::int64_t channels) {
  return groups * channel_blocks(rows, channels) * 2 * channels;
}
// mean[c] and m2[c] = sum (x - mean)^2; blocks are combined by Chan's formula.
template <class T, class S>
void channel_moments(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, double* scratch, S* mean, S* m2,
                     Stream stream);
// y = leaky_relu((x - m) * a + b, slope) per channel
template <class T, class S>
void channel_affine(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, const S* m, const S* a, const S* b,
                    double slope, T* y, Stream stream);
// h = y <= 0 ? slope * g : g, which may be g, and sums[c] = sum h; of one group
template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, double slope, double* scratch,
                             T* h, T* sums, Stream stream);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class T, class S>
void channel_dots(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x, const S* m,
                  double* scratch, S* sums, S* dots, Stream stream);

// Behind leaky_relu(z, slope), z = (x - m) a + b with a = gamma inverse, inverse = (variance + epsilon)^-1/2 of x's own
// statistics: h = z <= 0 ? slope g : g, sums[c] = sum h, dots[c] = sum h (x - m), and
// gx = a (h - sums / rows - (x - m) inverse^2 dots / rows), which may be g.
template <class S>
struct NormOfChannels {
  S slope{1};
  const S *m = nullptr, *a = nullptr, *b = nullptr, *inverse = nullptr;
};
inline std::int64_t norm_scratch(std::int64_t groups, std::int64_t rows, std::int64_t channels) {
  return channel_scratch(groups, rows, channels) + 2 * groups * channels;
}
template <class T, class S>
void norm_adjoint(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x,
                  const NormOfChannels<S>& norm, double* scratch, T* gx, S* sums, S* dots, Stream stream);

// ---- indices (views/index_kernels.cu)

// y[i] = x[index[i]], rows of `length` elements; T an unsigned integer as wide as the elements. An index outside [0, rows) leaves
// zeros and a fault.
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
// The same as booleans; a label outside [0, classes) is a fault unless it is `ignored` (if has_ignored).
template <class I>
void label_mask(std::int64_t count, std::int64_t classes, bool has_ignored, std::int64_t ignored, const I* label, bool* y,
                Fault* fault, Stream stream);

// ---- random numbers (random/random_kernels.cu), by the arithmetic of the CPU: words, uniform numbers and masks are equal bit
// for bit; normal ones differ by what cos and log of the two mathematical libraries do, a unit in the last place of a double

struct RandomProblem {
  int kind = 0;  // of ops::RandomNumbers
  Philox random;
  double a = 0, b = 1, limit = 0;
  StridedWalk<1> place;  // of local elements in the global array, from `first` on
  std::int64_t first = 0;
  const StepScalars* live = nullptr;  // on the GPU: numbers of random.child(live->step)
};
template <class T>
void random(const RandomProblem& problem, std::int64_t n, T* y, Stream stream);

}  // namespace mpigrad::cuda
