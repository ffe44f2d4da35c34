// Rows by index, and labels.

#include "framework/cuda/element.cuh"
#include "framework/cuda/fault.h"
#include "framework/cuda/launch.cuh"
#include "framework/tensor/strided.h"
#include "ops/kernel/element_types.h"
#include "ops/views/index_cuda_kernels.h"

namespace mpigrad::cuda {
namespace {

// Several threads may write: the host can report the record of any of them.
__device__ void report(Fault* fault, FaultKind kind, std::int64_t index, std::int64_t limit) {
  fault->index = index;
  fault->limit = limit;
  fault->kind = kind;
}

template <class T>
__global__ void take_kernel(std::int64_t n, std::int64_t rows, FastDivide length, const T* x, const std::int64_t* index, T* y,
                            Fault* fault) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const std::int64_t row = length.quotient(i), at = index[row];
    const bool inside = at >= 0 && at < rows;
    if (!inside) report(fault, FaultKind::take, at, rows);
    y[i] = inside ? x[at * length.divisor() + (i - row * length.divisor())] : T(0);
  }
}

template <class T>
__global__ void map_lines_kernel(std::int64_t size, FastDivide inner, FastDivide rows, SparseLines lines, const T* x, T* y) {
  using C = Compute<T>;
  for (std::int64_t i = first_index(); i < size; i += grid_stride()) {
    const std::int64_t line = inner.quotient(i), at = i - line * inner.divisor();
    const std::int64_t outer = rows.quotient(line), row = line - outer * rows.divisor();
    C sum = 0;
    for (std::int64_t k = lines.first[row]; k < lines.first[row + 1]; ++k)
      sum += static_cast<C>(lines.weight[k]) * load(x[(outer * lines.n + lines.index[k]) * inner.divisor() + at]);
    y[i] = store<T>(sum);
  }
}

// scratch: `count` positions, sorted by row and ascending within a row; rows + 1 ends; rows cursors. Only integers are added
// atomically, so that nothing depends on the order of threads.
__global__ void count_kernel(std::int64_t count, std::int64_t rows, const std::int64_t* index, std::int64_t* ends, Fault* fault) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) {
    const std::int64_t at = index[i];
    if (at < 0 || at >= rows) report(fault, FaultKind::scatter_add, at, rows);
    else atomicAdd(reinterpret_cast<unsigned long long*>(ends + at + 1), 1ULL);
  }
}

constexpr int wide_block = 1024;

// One block: ends[r + 1] becomes the sum of the counts up to row r, cursors[r] the beginning of row r.
__global__ void scan_kernel(std::int64_t rows, std::int64_t* ends, std::int64_t* cursors) {
  __shared__ std::int64_t sums[wide_block];
  const auto t = static_cast<std::int64_t>(threadIdx.x);
  std::int64_t before = 0;
  for (std::int64_t base = 0; base < rows; base += wide_block) {
    const std::int64_t r = base + t, own = r < rows ? ends[r + 1] : 0;
    sums[t] = own;
    __syncthreads();
    for (int step = 1; step < wide_block; step *= 2) {
      const std::int64_t left = t >= step ? sums[t - step] : 0;
      __syncthreads();
      sums[t] += left;
      __syncthreads();
    }
    const std::int64_t end = before + sums[t];
    if (r < rows) {
      cursors[r] = end - own;
      ends[r + 1] = end;
    }
    before += sums[wide_block - 1];
    __syncthreads();
  }
}

// One block processes the indices in order, a tile at a time; each index is placed after earlier ones with the same row.
__global__ void place_kernel(std::int64_t count, std::int64_t rows, const std::int64_t* index, std::int64_t* cursors,
                             std::int64_t* positions) {
  __shared__ std::int64_t tile[wide_block];
  const int t = static_cast<int>(threadIdx.x);
  for (std::int64_t base = 0; base < count; base += wide_block) {
    const std::int64_t i = base + t;
    std::int64_t row = i < count ? index[i] : -1;
    if (row >= rows) row = -1;
    tile[t] = row;
    __syncthreads();
    std::int64_t same_before = 0;
    bool last = true;
    for (int j = 0; j < t; ++j) same_before += tile[j] == row ? 1 : 0;
    for (int j = t + 1; j < wide_block; ++j) last = last && tile[j] != row;
    if (row >= 0) positions[cursors[row] + same_before] = i;
    __syncthreads();
    if (row >= 0 && last) cursors[row] += same_before + 1;
    __syncthreads();
  }
}

template <class T>
__global__ void add_rows_kernel(std::int64_t n, FastDivide length, const T* x, const std::int64_t* ends,
                                const std::int64_t* positions, T* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const std::int64_t row = length.quotient(i), column = i - row * length.divisor();
    Compute<T> total(0);
    for (std::int64_t k = ends[row]; k < ends[row + 1]; ++k)
      total = static_cast<Compute<T>>(total + load(x[positions[k] * length.divisor() + column]));
    y[i] = store<T>(total);
  }
}

template <class I, class T>
__global__ void one_hot_kernel(std::int64_t n, FastDivide classes, const I* label, T one, T* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const std::int64_t row = classes.quotient(i);
    y[i] = static_cast<std::int64_t>(label[row]) == i - row * classes.divisor() ? one : T(0);
  }
}

template <class I>
__global__ void label_mask_kernel(std::int64_t n, FastDivide classes, bool has_ignored, std::int64_t ignored, const I* label,
                                  bool* y, Fault* fault) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const std::int64_t row = classes.quotient(i), at = static_cast<std::int64_t>(label[row]);
    const bool counts = !(has_ignored && at == ignored);
    if (counts && (at < 0 || at >= classes.divisor())) report(fault, FaultKind::label, at, classes.divisor());
    y[i] = counts && at == i - row * classes.divisor();
  }
}

}  // namespace

template <class T>
void take(std::int64_t count, std::int64_t rows, std::int64_t length, const T* x, const std::int64_t* index, T* y, Fault* fault,
          Stream stream) {
  const std::int64_t n = count * length;
  if (n == 0) return;
  launch("take", take_kernel<T>, blocks_for(n), block_threads, stream, n, rows, FastDivide(length), x, index, y, fault);
}

template <class T>
void map_lines(const SparseLines& lines, const T* x, T* y, Stream stream) {
  const std::int64_t n = lines.outer * lines.rows * lines.inner;
  if (n == 0) return;
  launch("map_lines", map_lines_kernel<T>, blocks_for(n), block_threads, stream, n, FastDivide(lines.inner),
         FastDivide(lines.rows), lines, x, y);
}

template <class T>
void scatter_add(std::int64_t count, std::int64_t rows, std::int64_t length, const T* x, const std::int64_t* index,
                 std::int64_t* scratch, T* y, Fault* fault, Stream stream) {
  if (rows == 0 && count == 0) return;
  std::int64_t *positions = scratch, *ends = positions + count, *cursors = ends + rows + 1;
  check(cudaMemsetAsync(ends, 0, static_cast<std::size_t>(rows + 1) * sizeof(std::int64_t), native(stream)), "cudaMemsetAsync");
  if (count > 0)
    launch("scatter_add: count", count_kernel, blocks_for(count), block_threads, stream, count, rows, index, ends, fault);
  if (rows * length == 0) return;
  launch("scatter_add: scan", scan_kernel, 1, wide_block, stream, rows, ends, cursors);
  if (count > 0) launch("scatter_add: place", place_kernel, 1, wide_block, stream, count, rows, index, cursors, positions);
  const std::int64_t n = rows * length;
  launch("scatter_add: add", add_rows_kernel<T>, blocks_for(n), block_threads, stream, n, FastDivide(length), x, ends, positions,
         y);
}

template <class I, class T>
void one_hot(std::int64_t count, std::int64_t classes, const I* label, T one, T* y, Stream stream) {
  const std::int64_t n = count * classes;
  if (n == 0) return;
  launch("one_hot", one_hot_kernel<I, T>, blocks_for(n), block_threads, stream, n, FastDivide(classes), label, one, y);
}

template <class I>
void label_mask(std::int64_t count, std::int64_t classes, bool has_ignored, std::int64_t ignored, const I* label, bool* y,
                Fault* fault, Stream stream) {
  const std::int64_t n = count * classes;
  if (n == 0) return;
  launch("label_mask", label_mask_kernel<I>, blocks_for(n), block_threads, stream, n, FastDivide(classes), has_ignored, ignored,
         label, y, fault);
}

#define MPIGRAD_MAKE(T) \
  template void take(std::int64_t, std::int64_t, std::int64_t, const T*, const std::int64_t*, T*, Fault*, Stream);
MPIGRAD_WIDTHS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(T)                                                                                                         \
  template void scatter_add(std::int64_t, std::int64_t, std::int64_t, const T*, const std::int64_t*, std::int64_t*, T*, Fault*, \
                            Stream);
MPIGRAD_ALL_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(T) template void map_lines(const SparseLines&, const T*, T*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
// `one` has the bits of a 1 in the wanted type.
#define MPIGRAD_ONE_HOT(I, T) template void one_hot(std::int64_t, std::int64_t, const I*, T, T*, Stream);
#define MPIGRAD_MAKE(I)             \
  MPIGRAD_ONE_HOT(I, std::uint8_t)  \
  MPIGRAD_ONE_HOT(I, std::uint16_t) \
  MPIGRAD_ONE_HOT(I, std::uint32_t) \
  MPIGRAD_ONE_HOT(I, std::uint64_t) \
  template void label_mask(std::int64_t, std::int64_t, bool, std::int64_t, const I*, bool*, Fault*, Stream);
MPIGRAD_INTEGER_TYPES(MPIGRAD_MAKE)
MPIGRAD_MAKE(bool)
MPIGRAD_MAKE(std::uint16_t)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
