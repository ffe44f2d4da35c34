// Kernels that convert operands to the layout in memory that a library needs, and complete its results.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/backends/cuda/convert.h"
#include "ops/kernel/rows.cuh"

namespace mpigrad::cuda {
namespace {

struct BoxPlan {
  Box box;
  std::int64_t rows;
  unsigned from_packs, to_packs, items;
};

// Elements are moved as packs of V; all bits of a zero are 0.
template <class P>
__global__ void box_kernel(BoxPlan b, const P* from, P* to) {
  for_rows(b.rows, b.items, [&](std::int64_t row, unsigned item) {
    const auto &f = b.box.from, &t = b.box.to, &o = b.box.offset;
    const std::int64_t planes = row / t[1], n = planes / t[0];
    const std::int64_t d = planes - n * t[0] + o[0], h = row - planes * t[1] + o[1];
    const unsigned cell = item / b.to_packs, c = item - cell * b.to_packs;
    const std::int64_t w = cell + o[2];
    const bool is_inside = d >= 0 && d < f[0] && h >= 0 && h < f[1] && w >= 0 && w < f[2] && c < b.from_packs;
    to[row * b.items + item] = is_inside ? from[(((n * f[0] + d) * f[1] + h) * f[2] + w) * b.from_packs + c] : P{};
  });
}

template <class P>
void run_box(const Box& box, std::int64_t per_pack, const void* from, void* to, void* stream) {
  BoxPlan b{box, box.batch * box.to[0] * box.to[1], static_cast<unsigned>(box.from_channels / per_pack),
            static_cast<unsigned>(box.to_channels / per_pack), 0};
  b.items = static_cast<unsigned>(box.to[2]) * b.to_packs;
  const auto g = row_grid(b.rows, b.items);
  launch("move_box", box_kernel<P>, g.grid, g.block, stream, b, static_cast<const P*>(from), static_cast<P*>(to));
}

constexpr int tile = 32, tile_rows = 8;

// A tile goes through shared memory, so that both sides are accessed along their rows; the odd pitch avoids bank conflicts.
template <class T>
__global__ void transpose_kernel(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t tiles_down,
                                 std::int64_t tiles_across, const T* from, T* to) {
  __shared__ T cells[tile][tile + 1];
  const std::int64_t per_matrix = tiles_down * tiles_across;
  for (std::int64_t at = blockIdx.x; at < batch * per_matrix; at += gridDim.x) {
    const std::int64_t matrix = at / per_matrix, inner = at - matrix * per_matrix;
    const std::int64_t r0 = inner / tiles_across * tile, c0 = inner % tiles_across * tile;
    const T* source = from + matrix * rows * columns;
    T* target = to + matrix * rows * columns;
    for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_rows) {
      const std::int64_t r = r0 + i, c = c0 + threadIdx.x;
      if (r < rows && c < columns) cells[i][threadIdx.x] = source[r * columns + c];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_rows) {
      const std::int64_t r = r0 + threadIdx.x, c = c0 + i;
      if (r < rows && c < columns) target[c * rows + r] = cells[threadIdx.x][i];
    }
    __syncthreads();
  }
}

template <class T>
void run_transpose(std::int64_t batch, std::int64_t rows, std::int64_t columns, const void* from, void* to, void* stream) {
  const std::int64_t down = (rows + tile - 1) / tile, across = (columns + tile - 1) / tile, blocks = batch * down * across;
  constexpr std::int64_t most = 1 << 20;
  launch("transpose", transpose_kernel<T>, static_cast<unsigned>(blocks < most ? blocks : most), dim3(tile, tile_rows), stream,
         batch, rows, columns, down, across, static_cast<const T*>(from), static_cast<T*>(to));
}

template <class T, int V>
__global__ void bias_activation_kernel(std::int64_t rows, unsigned items, const Pack<T, V>* x, const Pack<T, V>* bias,
                                       Compute<T> factor, Pack<T, V>* y) {
  for_rows(rows, items, [&](std::int64_t row, unsigned item) {
    auto pack = x[row * items + item];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      Compute<T> value = load(pack.of[i]);
      if (bias) value += load(bias[item].of[i]);
      if (value < 0) value = factor == 0 ? Compute<T>{} : factor * value;
      pack.of[i] = store<T>(value);
    }
    y[row * items + item] = pack;
  });
}

template <class T, class Sum>
__global__ void add_up_kernel(std::int64_t n, const T* x, Sum* sum, bool first) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) sum[i] = first ? load(x[i]) : sum[i] + load(x[i]);
}
template <class T>
__global__ void special_bias_kernel(std::int64_t n, T* bias) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride())
    bias[i] = store<T>(static_cast<Compute<T>>(i % 2 == 0 ? NAN : INFINITY));
}
// Even channels must be NaN; in odd channels the sum with +infinity is +infinity, or NaN if the convolution gave -infinity or
// NaN.
template <class T>
__global__ void ordinary_kernel(std::int64_t n, std::int64_t channels, const T* y, std::int32_t* found) {
  bool ordinary = false;
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const Compute<T> value = load(y[i]);
    const bool is_nan = value != value, is_infinity = value == static_cast<Compute<T>>(INFINITY);
    ordinary = ordinary || !(is_nan || (is_infinity && i % channels % 2 != 0));
  }
  if (ordinary) *found = 1;
}

template <class T, class Sum>
__global__ void round_kernel(std::int64_t n, const Sum* sum, T* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) y[i] = store<T>(sum[i]);
}

}  // namespace

void move_box(const Box& box, std::int64_t width, const void* from, void* to, void* stream) {
  if (box.batch * volume(box.to) * box.to_channels == 0) return;
  if (const std::int64_t v = 16 / width;
      box.from_channels % v == 0 && box.to_channels % v == 0 && aligned_to(from, 16) && aligned_to(to, 16))
    run_box<uint4>(box, v, from, to, stream);
  else if (width == 2) run_box<std::uint16_t>(box, 1, from, to, stream);
  else if (width == 4) run_box<std::uint32_t>(box, 1, from, to, stream);
  else run_box<std::uint64_t>(box, 1, from, to, stream);
}

void transpose(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t width, const void* from, void* to,
               void* stream) {
  if (batch * rows * columns == 0) return;
  if (width == 2) run_transpose<std::uint16_t>(batch, rows, columns, from, to, stream);
  else if (width == 4) run_transpose<std::uint32_t>(batch, rows, columns, from, to, stream);
  else run_transpose<std::uint64_t>(batch, rows, columns, from, to, stream);
}

template <class T>
void bias_activation(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, scalar::Fused fused, T* y,
                     void* stream) {
  if ((x == y && !bias && fused.is_none()) || rows * channels == 0) return;
  const auto run = [&](auto v) {
    constexpr int V = decltype(v)::value;
    const auto items = static_cast<unsigned>(channels / V);
    const auto g = row_grid(rows, items);
    launch("bias_activation", bias_activation_kernel<T, V>, g.grid, g.block, stream, rows, items,
           reinterpret_cast<const Pack<T, V>*>(x), reinterpret_cast<const Pack<T, V>*>(bias),
           static_cast<Compute<T>>(fused.factor), reinterpret_cast<Pack<T, V>*>(y));
  };
  constexpr int wide = 16 / sizeof(T);
  if (channels % wide == 0 && aligned_to(x, 16) && aligned_to(y, 16) && aligned_to(bias, 16))
    run(std::integral_constant<int, wide>{});
  else run(std::integral_constant<int, 1>{});
}

template <class T>
void special_bias(std::int64_t channels, T* bias, void* stream) {
  launch("special_bias", special_bias_kernel<T>, blocks_for(channels), block_threads, stream, channels, bias);
}
template <class T>
void find_ordinary(std::int64_t rows, std::int64_t channels, const T* y, std::int32_t* found, void* stream) {
  const std::int64_t n = rows * channels;
  launch("find_ordinary", ordinary_kernel<T>, blocks_for(n), block_threads, stream, n, channels, y, found);
}

template <class T, class Sum>
void add_up(std::int64_t n, const T* x, Sum* sum, bool first, void* stream) {
  if (n == 0) return;
  launch("add_up", add_up_kernel<T, Sum>, blocks_for(n), block_threads, stream, n, x, sum, first);
}
template <class T, class Sum>
void round_sum(std::int64_t n, const Sum* sum, T* y, void* stream) {
  if (n == 0) return;
  launch("round_sum", round_kernel<T, Sum>, blocks_for(n), block_threads, stream, n, sum, y);
}

#define MPIGRAD_MAKE(T, Sum)                                                                               \
  template void bias_activation(std::int64_t, std::int64_t, const T*, const T*, scalar::Fused, T*, void*); \
  template void special_bias(std::int64_t, T*, void*);                                                     \
  template void find_ordinary(std::int64_t, std::int64_t, const T*, std::int32_t*, void*);                 \
  template void add_up(std::int64_t, const T*, Sum*, bool, void*);                                         \
  template void round_sum(std::int64_t, const Sum*, T*, void*);
MPIGRAD_MAKE(float, float)
MPIGRAD_MAKE(double, double)
MPIGRAD_MAKE(BFloat16, float)
MPIGRAD_MAKE(Float16, float)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
