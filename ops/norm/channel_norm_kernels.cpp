// Per-channel statistics and affine maps of rows of channels. The partition of rows into blocks depends only on their number, and
// blocks are combined in order: the result does not depend on the number of threads. 16-bit elements are widened and rounded in
// registers.

#include <algorithm>
#include <vector>

#include "framework/base/target_clones.h"
#include "framework/tensor/half.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/channel_rows.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/parts.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

namespace {

constexpr std::int64_t chunk_elements = 16384;  // stays in the first or second cache between two passes
constexpr std::int64_t max_blocks = 256;

struct Blocks {
  std::int64_t count = 0, rows = 0;  // the last block may be shorter
  std::int64_t chunk = 1;            // rows of a chunk
};

Blocks blocks_of(std::int64_t rows, std::int64_t channels) {
  Blocks b;
  b.chunk = std::max<std::int64_t>(1, chunk_elements / std::max<std::int64_t>(1, channels));
  b.rows = std::max(b.chunk, ceil_div(rows, max_blocks));
  b.count = ceil_div(rows, b.rows);
  return b;
}

template <class E>
MPIGRAD_BODY void add_rows_body(std::int64_t rows, std::int64_t channels, const E* __restrict x, double* __restrict sum) {
  for (std::int64_t r = 0; r < rows; ++r, x += channels)
    for (std::int64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>(x[c]);
}

template <class E>
MPIGRAD_BODY void add_squares_body(std::int64_t rows, std::int64_t channels, const E* __restrict x, const double* __restrict mean,
                                   double* __restrict m2) {
  for (std::int64_t r = 0; r < rows; ++r, x += channels)
    for (std::int64_t c = 0; c < channels; ++c) {
      const double d = static_cast<double>(x[c]) - mean[c];
      m2[c] += d * d;
    }
}

template <class E>
MPIGRAD_BODY void add_dots_body(std::int64_t rows, std::int64_t channels, const E* __restrict g, const E* __restrict x,
                                const Computed<E>* __restrict m, double* __restrict sum, double* __restrict dot) {
  for (std::int64_t r = 0; r < rows; ++r, g += channels, x += channels)
    for (std::int64_t c = 0; c < channels; ++c) {
      const double gc = static_cast<double>(g[c]);
      sum[c] += gc;
      dot[c] += gc * (static_cast<double>(x[c]) - static_cast<double>(m[c]));
    }
}

// h = g, or factor g where (x - m) a + b <= 0. Sums of a few rows in T, and of these sums in double.
template <class E>
MPIGRAD_BODY void add_norm_dots_body(std::int64_t rows, std::int64_t channels, const E* __restrict g, const E* __restrict x,
                                     const NormOfChannels<Computed<E>>& of, double* __restrict sum, double* __restrict dot) {
  using T = Computed<E>;
  constexpr std::int64_t few = 16, most = 64;
  const T factor = static_cast<T>(of.fused.factor);
  for (std::int64_t first = 0; first < channels; first += most) {
    const std::int64_t n = std::min(most, channels - first);
    const T *m = of.m + first, *a = of.a + first, *b = of.b + first;
    for (std::int64_t begin = 0; begin < rows; begin += few) {
      T sums[most] = {}, dots[most] = {};
      for (std::int64_t r = begin; r < std::min(begin + few, rows); ++r) {
        const E *gr = g + r * channels + first, *xr = x + r * channels + first;
#pragma omp simd
        for (std::int64_t c = 0; c < n; ++c) {
          const T gc = gr[c], d = T{xr[c]} - m[c], h = d * a[c] + b[c] <= 0 ? factor * gc : gc;
          sums[c] += h;
          dots[c] += h * d;
        }
      }
      for (std::int64_t c = 0; c < n; ++c) sum[first + c] += static_cast<double>(sums[c]);
      for (std::int64_t c = 0; c < n; ++c) dot[first + c] += static_cast<double>(dots[c]);
    }
  }
}

// gx = a h + p (x - m) + q
template <class E>
MPIGRAD_BODY void norm_input_body(std::int64_t rows, std::int64_t channels, const E* g, const E* x,
                                  const NormOfChannels<Computed<E>>& of, const Computed<E>* p, const Computed<E>* q, E* gx) {
  using T = Computed<E>;
  const T *m = of.m, *a = of.a, *b = of.b, factor = static_cast<T>(of.fused.factor);
  for (std::int64_t r = 0; r < rows; ++r, g += channels, x += channels, gx += channels)
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const T xc = x[c], gc = g[c], d = xc - m[c], h = d * a[c] + b[c] <= 0 ? factor * gc : gc;
      store(gx + c, a[c] * h + (p[c] * d + q[c]));
    }
}

template <class E>
MPIGRAD_BODY void affine_body(std::int64_t rows, std::int64_t channels, const E* x, const Computed<E>* m, const Computed<E>* a,
                              const Computed<E>* b, scalar::Fused fused, E* y) {
  using T = Computed<E>;
  const scalar::LeakyRelu f{fused};
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    if (fused.is_none()) {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) store(y + c, (T{x[c]} - m[c]) * a[c] + b[c]);
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) store(y + c, f((T{x[c]} - m[c]) * a[c] + b[c]));
    }
  }
}

template <class E>
MPIGRAD_BODY void leaky_bias_body(std::int64_t rows, std::int64_t channels, const E* x, const E* bias, scalar::Fused fused,
                                  E* y) {
  using T = Computed<E>;
  const scalar::LeakyRelu f{fused};
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels)
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) store(y + c, f(T{x[c]} + T{bias[c]}));
}

template <class E>
MPIGRAD_BODY void leaky_adjoint_body(std::int64_t n, const E* g, const E* __restrict y, scalar::Fused fused, E* inner) {
  using T = Computed<E>;
  const scalar::LeakyReluAdjoint f{fused};
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(inner + i, f(T{g[i]}, T{y[i]}));
}

#define MPIGRAD_CHANNEL_ROWS(E, T)                                                                                              \
  MPIGRAD_CLONES void add_rows(std::int64_t rows, std::int64_t channels, const E* x, double* sum) {                             \
    add_rows_body(rows, channels, x, sum);                                                                                      \
  }                                                                                                                             \
  MPIGRAD_CLONES void add_squares(std::int64_t rows, std::int64_t channels, const E* x, const double* mean, double* m2) {       \
    add_squares_body(rows, channels, x, mean, m2);                                                                              \
  }                                                                                                                             \
  MPIGRAD_CLONES void add_dots(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const T* m, double* sum,       \
                               double* dot) {                                                                                   \
    add_dots_body(rows, channels, g, x, m, sum, dot);                                                                           \
  }                                                                                                                             \
  MPIGRAD_CLONES void add_norm_dots(std::int64_t rows, std::int64_t channels, const E* g, const E* x,                           \
                                    const NormOfChannels<T>& of, double* sum, double* dot) {                                    \
    add_norm_dots_body(rows, channels, g, x, of, sum, dot);                                                                     \
  }                                                                                                                             \
  MPIGRAD_CLONES void norm_input(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const NormOfChannels<T>& of, \
                                 const T* p, const T* q, E* gx) {                                                               \
    norm_input_body(rows, channels, g, x, of, p, q, gx);                                                                        \
  }                                                                                                                             \
  MPIGRAD_CLONES void affine(std::int64_t rows, std::int64_t channels, const E* x, const T* m, const T* a, const T* b,          \
                             scalar::Fused fused, E* y) {                                                                       \
    affine_body(rows, channels, x, m, a, b, fused, y);                                                                          \
  }                                                                                                                             \
  MPIGRAD_CLONES void leaky_bias(std::int64_t rows, std::int64_t channels, const E* x, const E* bias, scalar::Fused fused,      \
                                 E* y) {                                                                                        \
    leaky_bias_body(rows, channels, x, bias, fused, y);                                                                         \
  }                                                                                                                             \
  MPIGRAD_CLONES void leaky_adjoint(std::int64_t n, const E* g, const E* y, scalar::Fused fused, E* inner) {                    \
    leaky_adjoint_body(n, g, y, fused, inner);                                                                                  \
  }
MPIGRAD_CHANNEL_ROWS(float, float)
MPIGRAD_CHANNEL_ROWS(double, double)
MPIGRAD_CHANNEL_ROWS(BFloat16, float)
MPIGRAD_CHANNEL_ROWS(Float16, float)
#undef MPIGRAD_CHANNEL_ROWS

// Chan et al.: merges (other_count, other_mean, other_m2) into (count, mean, m2).
void join_moments(std::int64_t channels, double& count, double* mean, double* m2, double other_count, const double* other_mean,
                  const double* other_m2) {
  const double total = count + other_count;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double delta = other_mean[c] - mean[c];
    mean[c] += delta * (other_count / total);
    m2[c] += other_m2[c] + delta * delta * (count * other_count / total);
  }
  count = total;
}

}  // namespace

template <class E>
void channel_moments(std::int64_t rows, std::int64_t channels, const E* x, Computed<E>* mean, Computed<E>* m2) {
  using T = Computed<E>;
  const Blocks blocks = blocks_of(rows, channels);
  std::vector<double> partial(static_cast<std::size_t>((blocks.count + 1) * 2 * channels), 0.0);
  double* parts = partial.data();
  ParallelErrors errors;
  cpu::for_parts(blocks.count, blocks.count > 1, [&](std::int64_t low, std::int64_t high) {
    for (std::int64_t b = low; b < high; ++b)
      errors.guard([&] {
        double* block_mean = parts + (b + 1) * 2 * channels;
        double* block_m2 = block_mean + channels;
        std::vector<double> chunk(static_cast<std::size_t>(2 * channels));
        double* chunk_mean = chunk.data();
        double* chunk_m2 = chunk_mean + channels;
        double count = 0;
        const std::int64_t end = std::min(rows, (b + 1) * blocks.rows);
        for (std::int64_t r = b * blocks.rows; r < end; r += blocks.chunk) {
          const std::int64_t n = std::min(blocks.chunk, end - r);
          std::fill(chunk.begin(), chunk.end(), 0.0);
          add_rows(n, channels, x + r * channels, chunk_mean);
          for (std::int64_t c = 0; c < channels; ++c) chunk_mean[c] /= static_cast<double>(n);
          add_squares(n, channels, x + r * channels, chunk_mean, chunk_m2);
          join_moments(channels, count, block_mean, block_m2, static_cast<double>(n), chunk_mean, chunk_m2);
        }
      });
  });
  errors.rethrow();
  double count = 0;
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const double* block = parts + (b + 1) * 2 * channels;
    const auto n = static_cast<double>(std::min(blocks.rows, rows - b * blocks.rows));
    join_moments(channels, count, parts, parts + channels, n, block, block + channels);
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] = static_cast<T>(parts[c]);
    m2[c] = static_cast<T>(parts[channels + c]);
  }
}

template <class E>
void channel_affine(std::int64_t rows, std::int64_t channels, const E* x, const Computed<E>* m, const Computed<E>* a,
                    const Computed<E>* b, scalar::Fused fused, E* y) {
  const std::int64_t chunk = blocks_of(rows, channels).chunk, chunks = ceil_div(rows, chunk);
  cpu::for_parts(chunks, chunks > 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      affine(std::min(chunk, rows - i * chunk), channels, x + i * chunk * channels, m, a, b, fused, y + i * chunk * channels);
  });
}

namespace {

// Calls add(rows, first row, sums, dots) for every block and adds the results in order: sums of all channels, then dots.
template <class F>
std::vector<double> added_up(std::int64_t rows, std::int64_t channels, const F& add) {
  const Blocks blocks = blocks_of(rows, channels);
  std::vector<double> partial(static_cast<std::size_t>((blocks.count + 1) * 2 * channels), 0.0);
  double* parts = partial.data();
  cpu::for_parts(blocks.count, blocks.count > 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * blocks.rows, n = std::min(blocks.rows, rows - first);
      double* block = parts + (b + 1) * 2 * channels;
      add(n, first, block, block + channels);
    }
  });
  for (std::int64_t b = 1; b <= blocks.count; ++b)
    for (std::int64_t c = 0; c < 2 * channels; ++c) parts[c] += parts[b * 2 * channels + c];
  partial.resize(static_cast<std::size_t>(2 * channels));
  return partial;
}

}  // namespace

template <class E>
void channel_dots(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const Computed<E>* m, Computed<E>* sums,
                  Computed<E>* dots) {
  using T = Computed<E>;
  const auto found = added_up(rows, channels, [&](std::int64_t n, std::int64_t first, double* sum, double* dot) {
    add_dots(n, channels, g + first * channels, x + first * channels, m, sum, dot);
  });
  std::transform(found.begin(), found.begin() + channels, sums, [](double v) { return static_cast<T>(v); });
  std::transform(found.begin() + channels, found.end(), dots, [](double v) { return static_cast<T>(v); });
}

template <class E>
void norm_adjoint(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const NormOfChannels<Computed<E>>& of, E* gx,
                  Computed<E>* sums, Computed<E>* dots) {
  using T = Computed<E>;
  const auto found = added_up(rows, channels, [&](std::int64_t n, std::int64_t first, double* sum, double* dot) {
    add_norm_dots(n, channels, g + first * channels, x + first * channels, of, sum, dot);
  });
  std::vector<T> p(static_cast<std::size_t>(channels)), q(p);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double sum = found[static_cast<std::size_t>(c)], dot = found[static_cast<std::size_t>(channels + c)];
    const double each = -static_cast<double>(of.a[c]) / static_cast<double>(rows), r = static_cast<double>(of.inverse[c]);
    p[static_cast<std::size_t>(c)] = static_cast<T>(each * r * r * dot);
    q[static_cast<std::size_t>(c)] = static_cast<T>(each * sum);
    sums[c] = static_cast<T>(sum), dots[c] = static_cast<T>(dot);
  }
  const std::int64_t chunk = blocks_of(rows, channels).chunk, chunks = ceil_div(rows, chunk);
  cpu::for_parts(chunks, chunks > 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = i * chunk * channels;
      norm_input(std::min(chunk, rows - i * chunk), channels, g + at, x + at, of, p.data(), q.data(), gx + at);
    }
  });
}

template <class E>
void bias_activation(std::int64_t rows, std::int64_t channels, const E* x, const E* bias, scalar::Fused fused, E* y) {
  const std::int64_t chunk = blocks_of(rows, channels).chunk, chunks = ceil_div(rows, chunk);
  cpu::for_parts(chunks, chunks > 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      leaky_bias(std::min(chunk, rows - i * chunk), channels, x + i * chunk * channels, bias, fused, y + i * chunk * channels);
  });
}

// A chunk is summed while it is in the cache.
template <class E>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const E* g, const E* y, scalar::Fused fused, E* inner,
                             E* sums) {
  const Blocks blocks = blocks_of(rows, channels);
  std::vector<double> partial(static_cast<std::size_t>((blocks.count + 1) * channels), 0.0);
  double* parts = partial.data();
  cpu::for_parts(blocks.count, blocks.count > 1, [&](std::int64_t low, std::int64_t high) {
    for (std::int64_t b = low; b < high; ++b) {
      const std::int64_t end = std::min(rows, (b + 1) * blocks.rows);
      for (std::int64_t r = b * blocks.rows; r < end; r += blocks.chunk) {
        const std::int64_t n = std::min(blocks.chunk, end - r), at = r * channels;
        leaky_adjoint(n * channels, g + at, y + at, fused, inner + at);
        add_rows(n, channels, inner + at, parts + (b + 1) * channels);
      }
    }
  });
  for (std::int64_t b = 1; b <= blocks.count; ++b)
    for (std::int64_t c = 0; c < channels; ++c) parts[c] += parts[b * channels + c];
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = static_cast<E>(parts[c]);
}

#define MPIGRAD_MAKE(E)                                                                                                          \
  template void bias_activation(std::int64_t, std::int64_t, const E*, const E*, scalar::Fused, E*);                              \
  template void bias_activation_adjoint(std::int64_t, std::int64_t, const E*, const E*, scalar::Fused, E*, E*);                  \
  template void channel_moments(std::int64_t, std::int64_t, const E*, Computed<E>*, Computed<E>*);                               \
  template void channel_affine(std::int64_t, std::int64_t, const E*, const Computed<E>*, const Computed<E>*, const Computed<E>*, \
                               scalar::Fused, E*);                                                                               \
  template void norm_adjoint(std::int64_t, std::int64_t, const E*, const E*, const NormOfChannels<Computed<E>>&, E*,             \
                             Computed<E>*, Computed<E>*);                                                                        \
  template void channel_dots(std::int64_t, std::int64_t, const E*, const E*, const Computed<E>*, Computed<E>*, Computed<E>*);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cpu
