// Maximum pooling with the position of the maximum, and the two linear maps defined by this position.

#include <limits>
#include <memory>

#include "framework/base/target_clones.h"
#include "framework/tensor/half_rows.h"
#include "ops/kernel/computed.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/parts.h"
#include "ops/kernel/problems.h"
#include "ops/pool/pool_kernels.h"

namespace mpigrad::cpu {

namespace {

constexpr std::int64_t parallel_from = 1 << 12;  // elements; below this a second thread costs more than it saves

// A value becomes the maximum if there is none yet, if it is larger, or if it is the first NaN.
template <class E>
MPIGRAD_BODY void max_row_body(std::int64_t channels, std::int32_t tap, const E* __restrict x, E* __restrict best,
                               std::int32_t* __restrict winner) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const Computed<E> v = x[c], b = best[c];
    const bool take = (winner[c] < 0) | (v > b) | ((v != v) & (b == b));
    best[c] = take ? x[c] : best[c];
    winner[c] = take ? tap : winner[c];
  }
}

// gx[c] += gy[c] where this tap won; y[c] is x[c] where this tap won.
template <class E>
MPIGRAD_BODY void scatter_row_body(std::int64_t channels, std::int32_t tap, const E* __restrict gy,
                                   const std::int32_t* __restrict winner, Computed<E>* __restrict gx) {
  using T = Computed<E>;
  for (std::int64_t c = 0; c < channels; ++c) gx[c] += winner[c] == tap ? T{gy[c]} : T{0};
}

#define MPIGRAD_MAKE(E)                                                                                                         \
  MPIGRAD_CLONES void max_row(std::int64_t n, std::int32_t tap, const E* x, E* best, std::int32_t* winner) {                    \
    max_row_body(n, tap, x, best, winner);                                                                                      \
  }                                                                                                                             \
  MPIGRAD_CLONES void scatter_row(std::int64_t n, std::int32_t tap, const E* gy, const std::int32_t* winner, Computed<E>* gx) { \
    scatter_row_body(n, tap, gy, winner, gx);                                                                                   \
  }
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

std::int32_t tap_index(const PoolProblem& p, std::int64_t d, std::int64_t h, std::int64_t v) {
  return static_cast<std::int32_t>((d * p.kernel[1] + h) * p.kernel[2] + v);
}

}  // namespace

template <class E>
void max_pool_forward(const PoolProblem& p, const E* x, E* y, std::int32_t* winner) {
  const std::int64_t rows = p.batch * p.out[0] * p.out[1];
  cpu::for_parts(rows, rows * p.out[2] * p.channels * volume(p.kernel) > parallel_from, [&](std::int64_t low, std::int64_t high) {
    for (std::int64_t row = low; row < high; ++row) {
      const std::int64_t oh = row % p.out[1], od = row / p.out[1] % p.out[0], n = row / p.out[1] / p.out[0];
      const std::int64_t d0 = od * p.stride[0] - p.pad_low[0], h0 = oh * p.stride[1] - p.pad_low[1];
      const Range td = inside(d0, p.dilation[0], p.kernel[0], p.in[0]), th = inside(h0, p.dilation[1], p.kernel[1], p.in[1]);
      for (std::int64_t ow = 0; ow < p.out[2]; ++ow) {
        const std::int64_t w0 = ow * p.stride[2] - p.pad_low[2];
        const Range tw = inside(w0, p.dilation[2], p.kernel[2], p.in[2]);
        E* best = y + (row * p.out[2] + ow) * p.channels;
        std::int32_t* place = winner + (row * p.out[2] + ow) * p.channels;
        std::fill_n(best, p.channels, static_cast<E>(-std::numeric_limits<Computed<E>>::infinity()));
        std::fill_n(place, p.channels, -1);
        for (std::int64_t d = td.begin; d < td.end; ++d)
          for (std::int64_t h = th.begin; h < th.end; ++h)
            for (std::int64_t v = tw.begin; v < tw.end; ++v) {
              const std::int64_t i =
                  ((n * p.in[0] + d0 + d * p.dilation[0]) * p.in[1] + h0 + h * p.dilation[1]) * p.in[2] + w0 + v * p.dilation[2];
              max_row(p.channels, tap_index(p, d, h, v), x + i * p.channels, best, place);
            }
      }
    }
  });
}

// gx[i] = sum of gy[o] over the windows with maximum i. Gathers, so that no two threads write the same element. 16-bit elements
// are added up in a row of floats and rounded once.
template <class E>
void max_pool_scatter(const PoolProblem& p, const E* gy, const std::int32_t* winner, E* gx) {
  using T = Computed<E>;
  constexpr bool rounds = !std::is_same_v<E, T>;
  const std::int64_t rows = p.batch * p.in[0] * p.in[1], length = p.in[2] * p.channels;
  ParallelErrors errors;
  cpu::for_parts(rows, rows * p.in[2] * p.channels * volume(p.kernel) > parallel_from, [&](std::int64_t begin, std::int64_t end) {
    std::unique_ptr<T[]> room;
    errors.guard([&] {
      if constexpr (rounds) room = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(length));
    });
    if (rounds && !room) return;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t ih = row % p.in[1], id = row / p.in[1] % p.in[0], n = row / p.in[1] / p.in[0];
      T* sums = nullptr;
      if constexpr (rounds) sums = room.get();
      else sums = gx + row * length;
      std::fill_n(sums, length, T{0});
      for (std::int64_t d = 0; d < p.kernel[0]; ++d) {
        const std::int64_t od = output_of(p, 0, id, d);
        if (od < 0) continue;
        for (std::int64_t h = 0; h < p.kernel[1]; ++h) {
          const std::int64_t oh = output_of(p, 1, ih, h);
          if (oh < 0) continue;
          for (std::int64_t iw = 0; iw < p.in[2]; ++iw)
            for (std::int64_t v = 0; v < p.kernel[2]; ++v) {
              const std::int64_t ow = output_of(p, 2, iw, v);
              if (ow < 0) continue;
              const std::int64_t o = (((n * p.out[0] + od) * p.out[1] + oh) * p.out[2] + ow) * p.channels;
              scatter_row(p.channels, tap_index(p, d, h, v), gy + o, winner + o, sums + iw * p.channels);
            }
        }
      }
      if constexpr (rounds) detail::convert(sums, gx + row * length, length);
    }
  });
  errors.rethrow();
}

// y[o] = x[position of winner], the transpose of max_pool_scatter.
template <class E>
void max_pool_gather(const PoolProblem& p, const E* x, const std::int32_t* winner, E* y) {
  const std::int64_t rows = p.batch * p.out[0] * p.out[1], plane = p.kernel[1] * p.kernel[2];
  cpu::for_parts(rows, rows * p.out[2] * p.channels > parallel_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t oh = row % p.out[1], od = row / p.out[1] % p.out[0], n = row / p.out[1] / p.out[0];
      const std::int64_t d0 = od * p.stride[0] - p.pad_low[0], h0 = oh * p.stride[1] - p.pad_low[1];
      for (std::int64_t ow = 0; ow < p.out[2]; ++ow) {
        const std::int64_t w0 = ow * p.stride[2] - p.pad_low[2], o = (row * p.out[2] + ow) * p.channels;
        for (std::int64_t c = 0; c < p.channels; ++c) {
          const std::int64_t t = winner[o + c];
          if (t < 0) {
            y[o + c] = static_cast<E>(Computed<E>{0});
            continue;
          }
          const std::int64_t id = d0 + t / plane * p.dilation[0], ih = h0 + t % plane / p.kernel[2] * p.dilation[1];
          const std::int64_t iw = w0 + t % p.kernel[2] * p.dilation[2];
          y[o + c] = x[(((n * p.in[0] + id) * p.in[1] + ih) * p.in[2] + iw) * p.channels + c];
        }
      }
    }
  });
}

#define MPIGRAD_MAKE(E)                                                                  \
  template void max_pool_forward(const PoolProblem&, const E*, E*, std::int32_t*);       \
  template void max_pool_scatter(const PoolProblem&, const E*, const std::int32_t*, E*); \
  template void max_pool_gather(const PoolProblem&, const E*, const std::int32_t*, E*);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cpu
