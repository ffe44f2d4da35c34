#include "ops/backends/winograd/winograd_kernels.h"

#include "framework/base/target_clones.h"

// The code below is compiled for several instruction sets; a function with a target attribute is chosen at its first use. (The
// clones of target_clones.h have no fused multiply-add with AVX2, and register tiles of one size only.)
#if defined(__x86_64__) && defined(__GNUC__)
#define MPIGRAD_X86_TARGETS
#endif

namespace mpigrad::cpu::winograd {
namespace {

// Lambdas, too, must be inlined into functions compiled for an instruction set.
#define MPIGRAD_INLINE __attribute__((always_inline))

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Sixteen __attribute__((vector_size(64)));

template <class V>
constexpr std::int64_t width = sizeof(V) / sizeof(float);

// Floats may be unaligned.
template <class V>
MPIGRAD_BODY void load(const float* p, V& to) {
  __builtin_memcpy(&to, p, sizeof(V));
}
template <class V>
MPIGRAD_BODY void store(const V& value, float* p) {
  __builtin_memcpy(p, &value, sizeof(V));
}

// One axis of each transform, from `from` to `to` elements, `step` vectors apart in both.
struct InputAxis {
  static constexpr int from = 4, to = 4;
  template <class V>
  MPIGRAD_BODY static void run(const V* x, V* y, int in, int out) {
    const V a = x[0], b = x[in], c = x[2 * in], d = x[3 * in];
    y[0] = a - c, y[out] = b + c, y[2 * out] = c - b, y[3 * out] = b - d;
  }
};

struct GradientAxis {
  static constexpr int from = 2, to = 4;
  template <class V>
  MPIGRAD_BODY static void run(const V* x, V* y, int in, int out) {
    const V a = x[0], b = x[in];
    y[0] = a, y[out] = a + b, y[2 * out] = a - b, y[3 * out] = -b;
  }
};

struct OutputAxis {
  static constexpr int from = 4, to = 2;
  template <class V>
  MPIGRAD_BODY static void run(const V* x, V* y, int in, int out) {
    const V a = x[0], b = x[in], c = x[2 * in], d = x[3 * in];
    y[0] = a + (b + c), y[out] = (b - c) - d;
  }
};

struct WeightAxis {
  static constexpr int from = 3, to = 4;
  template <class V>
  MPIGRAD_BODY static void run(const V* x, V* y, int in, int out) {
    const V a = x[0], b = x[in], c = x[2 * in];
    const V ends = (a + c) * 0.5F, middle = b * 0.5F;
    y[0] = a, y[out] = ends + middle, y[2 * out] = ends - middle, y[3 * out] = c;
  }
};

struct WeightGradientAxis {
  static constexpr int from = 4, to = 3;
  template <class V>
  MPIGRAD_BODY static void run(const V* x, V* y, int in, int out) {
    const V a = x[0], b = x[in], c = x[2 * in], d = x[3 * in];
    const V sum = (b + c) * 0.5F;
    y[0] = a + sum, y[out] = (b - c) * 0.5F, y[2 * out] = sum + d;
  }
};

// The transform along the last `dims` axes; x(d, h, w, to) loads an element and y(d, h, w, value) stores one. Two axes pass
// through registers, plane by plane.
template <class Axis, int dims, class V, class Load, class Store>
MPIGRAD_BODY void transform(const Load& x, const Store& y) {
  constexpr int n = Axis::from, m = Axis::to, depth = dims == 3 ? n : 1;
  V planes[depth * m * m];
  for (int d = 0; d < depth; ++d) {
    V cells[n * n], half[n * m];
#pragma GCC unroll 4
    for (int h = 0; h < n; ++h)
#pragma GCC unroll 4
      for (int w = 0; w < n; ++w) x(d, h, w, cells[h * n + w]);
#pragma GCC unroll 4
    for (int h = 0; h < n; ++h) Axis::run(cells + h * n, half + h * m, 1, 1);
#pragma GCC unroll 4
    for (int w = 0; w < m; ++w) Axis::run(half + w, planes + d * m * m + w, m, m);
  }
  for (int i = 0; i < m * m; ++i) {
    if constexpr (dims == 2) {
      y(0, i / m, i % m, planes[i]);
    } else {
      V column[m];
      Axis::run(planes + i, column, m * m, 1);
#pragma GCC unroll 4
      for (int d = 0; d < m; ++d) y(d, i / m, i % m, column[d]);
    }
  }
}

template <int n, int dims>
MPIGRAD_BODY bool whole(const Cells& cells) {
  bool all = true;
  for (std::size_t a = 3 - dims; a < 3; ++a) all &= cells.begin[a] <= 0 && cells.end[a] >= n;
  return all;
}

MPIGRAD_BODY bool there(const Cells& cells, int d, int h, int w) {
  return d >= cells.begin[0] && d < cells.end[0] && h >= cells.begin[1] && h < cells.end[1] && w >= cells.begin[2] &&
         w < cells.end[2];
}

MPIGRAD_BODY std::int64_t place(const Cells& cells, int d, int h, int w) {
  return d * cells.step[0] + h * cells.step[1] + w * cells.step[2];
}

// The transform of a tile's cells to positions.
template <class Axis, int dims, class V>
MPIGRAD_BODY void from_cells(const Cells& cells, std::int64_t channels, const float* x, float* v, std::int64_t stride) {
  const bool all = whole<Axis::from, dims>(cells);
  for (std::int64_t c = 0; c < channels; c += width<V>) {
    const auto put = [&](int d, int h, int w, const V& value)
                         MPIGRAD_INLINE { store(value, v + (d * 16 + h * 4 + w) * stride + c); };
    if (all)
      transform<Axis, dims, V>([&](int d, int h, int w, V& to) MPIGRAD_INLINE { load(x + place(cells, d, h, w) + c, to); }, put);
    else
      transform<Axis, dims, V>(
          [&](int d, int h, int w, V& to) MPIGRAD_INLINE {
            to = V{};
            if (there(cells, d, h, w)) load(x + place(cells, d, h, w) + c, to);
          },
          put);
  }
}

template <int dims, class V>
MPIGRAD_BODY void to_cells(const Cells& cells, std::int64_t channels, const float* m, std::int64_t stride, const float* bias,
                           scalar::FusedOf<float> fused, float* y) {
  const bool all = whole<2, dims>(cells);
  for (std::int64_t c = 0; c < channels; c += width<V>) {
    V shift{};
    if (bias != nullptr) load(bias + c, shift);
    transform<OutputAxis, dims, V>([&](int d, int h, int w, V& to)
                                       MPIGRAD_INLINE { load(m + (d * 16 + h * 4 + w) * stride + c, to); },
                                   [&](int d, int h, int w, const V& value) MPIGRAD_INLINE {
                                     if (!all && !there(cells, d, h, w)) return;
                                     const V sum = value + shift;
                                     // NaN is not below 0 and stays, and a ReLU's zeros are +0.
                                     V active = sum;
                                     if (fused.is_relu()) active = sum < 0.0F ? V{} : sum;
                                     else if (!fused.is_none()) active = sum < 0.0F ? sum * fused.factor : sum;
                                     store(active, y + place(cells, d, h, w) + c);
                                   });
  }
}

// Transforms taps to positions and back: elements are `between` and `stride` apart.
template <class Axis, int dims, class V>
MPIGRAD_BODY void dense(std::int64_t channels, const float* from, std::int64_t between, float* to, std::int64_t stride) {
  constexpr int n = Axis::from, m = Axis::to;
  for (std::int64_t c = 0; c < channels; c += width<V>)
    transform<Axis, dims, V>(
        [&](int d, int h, int w, V& value) MPIGRAD_INLINE { load(from + ((d * n + h) * n + w) * between + c, value); },
        [&](int d, int h, int w, const V& value) MPIGRAD_INLINE { store(value, to + ((d * m + h) * m + w) * stride + c); });
}

// A tile of c that stays in registers: rows x columns vectors.
template <class V, int rows, int columns>
MPIGRAD_BODY void tile(std::int64_t k, const float* a, std::int64_t row, std::int64_t column, const float* b, std::int64_t ldb,
                       bool accumulate, float* c, std::int64_t ldc) {
  V sum[rows][columns] = {};
  for (std::int64_t l = 0; l < k; ++l, a += column, b += ldb) {
    V factor[columns];
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) load(b + j * width<V>, factor[j]);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < columns; ++j) sum[i][j] += a[i * row] * factor[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      float* const to = c + i * ldc + j * width<V>;
      V before{};
      if (accumulate) load(to, before);
      store<V>(before + sum[i][j], to);
    }
}

template <class V, int most, int columns>
MPIGRAD_BODY void rows_of(std::int64_t m, std::int64_t k, const float* a, std::int64_t row, std::int64_t column, const float* b,
                          std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc) {
  std::int64_t i = 0;
  for (; i + most <= m; i += most) tile<V, most, columns>(k, a + i * row, row, column, b, ldb, accumulate, c + i * ldc, ldc);
  if constexpr (most > 4)
    for (; i + 4 <= m; i += 4) tile<V, 4, columns>(k, a + i * row, row, column, b, ldb, accumulate, c + i * ldc, ldc);
  for (; i < m; ++i) tile<V, 1, columns>(k, a + i * row, row, column, b, ldb, accumulate, c + i * ldc, ldc);
}

// `most` rows by `columns` vectors fill the registers; `lanes` floats are one or more vectors.
template <class V, int most, int columns>
MPIGRAD_BODY void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t row, std::int64_t column,
                          const float* b, std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc) {
  std::int64_t j = 0;
  for (; j + columns * width<V> <= n; j += columns * width<V>)
    rows_of<V, most, columns>(m, k, a, row, column, b + j, ldb, accumulate, c + j, ldc);
  for (; j < n; j += width<V>) rows_of<V, most, 1>(m, k, a, row, column, b + j, ldb, accumulate, c + j, ldc);
}

#define MPIGRAD_WINOGRAD(NAME, TARGET, V, MOST, COLUMNS)                                                                      \
  struct NAME {                                                                                                               \
    template <int dims>                                                                                                       \
    TARGET static void input(const Cells& cells, std::int64_t n, const float* x, float* v, std::int64_t stride) {             \
      from_cells<InputAxis, dims, V>(cells, n, x, v, stride);                                                                 \
    }                                                                                                                         \
    template <int dims>                                                                                                       \
    TARGET static void gradient(const Cells& cells, std::int64_t n, const float* g, float* v, std::int64_t stride) {          \
      from_cells<GradientAxis, dims, V>(cells, n, g, v, stride);                                                              \
    }                                                                                                                         \
    template <int dims>                                                                                                       \
    TARGET static void output(const Cells& cells, std::int64_t n, const float* m, std::int64_t stride, const float* bias,     \
                              scalar::FusedOf<float> fused, float* y) {                                                       \
      to_cells<dims, V>(cells, n, m, stride, bias, fused, y);                                                                 \
    }                                                                                                                         \
    template <int dims>                                                                                                       \
    TARGET static void weights(std::int64_t n, const float* taps, std::int64_t between, float* u, std::int64_t stride) {      \
      dense<WeightAxis, dims, V>(n, taps, between, u, stride);                                                                \
    }                                                                                                                         \
    template <int dims>                                                                                                       \
    TARGET static void weight_gradients(std::int64_t n, const float* s, std::int64_t stride, float* taps,                     \
                                        std::int64_t between) {                                                               \
      dense<WeightGradientAxis, dims, V>(n, s, stride, taps, between);                                                        \
    }                                                                                                                         \
    TARGET static void products(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t row,             \
                                std::int64_t column, const float* b, std::int64_t ldb, bool accumulate, float* c,             \
                                std::int64_t ldc) {                                                                           \
      product<V, MOST, COLUMNS>(m, n, k, a, row, column, b, ldb, accumulate, c, ldc);                                         \
    }                                                                                                                         \
    template <int dims>                                                                                                       \
    static constexpr Transforms transforms{input<dims>, gradient<dims>, output<dims>, weights<dims>, weight_gradients<dims>}; \
    static constexpr Kernels all{transforms<3>, transforms<2>, products};                                                     \
  }

MPIGRAD_WINOGRAD(Baseline, , Four, 4, 2);
#ifdef MPIGRAD_X86_TARGETS
MPIGRAD_WINOGRAD(Avx2, __attribute__((target("avx2,fma"))), Eight, 6, 2);
MPIGRAD_WINOGRAD(Avx512, __attribute__((target("avx512f"))), Sixteen, 12, 2);
#endif

std::vector<Kernels> find() {
  std::vector<Kernels> found;
#ifdef MPIGRAD_X86_TARGETS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) found.push_back(Avx512::all);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(Avx2::all);
#endif
  found.push_back(Baseline::all);
  return found;
}

}  // namespace

const std::vector<Kernels>& supported() {
  // Never destroyed: a rank thread may still compute while the process ends.
  static const auto& kernels = *new std::vector<Kernels>(find());
  return kernels;
}

}  // namespace mpigrad::cpu::winograd
