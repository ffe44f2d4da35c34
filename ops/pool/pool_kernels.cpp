// Average pooling in two steps per row of the result: the input rows under the window are added up along depth and height as
// whole, contiguous rows, and the sum is then combined along the width. This takes one pass over memory, for 27 taps as for 8. A
// LeakyReLU before the pooling is applied to rows as they are added up, while they are in the cache; in the adjoint, to each
// finished row. Rows of 16-bit elements are added up in float, and a finished row is rounded once.

#include <bit>
#include <cstring>
#include <memory>

#include "framework/base/target_clones.h"
#include "framework/tensor/half_rows.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/computed.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/problems.h"
#include "ops/pool/pool_kernels.h"
#include "ops/pool/pool_separated.h"

namespace mpigrad::cpu {

namespace {

template <class E, class T>
MPIGRAD_BODY void add_body(std::int64_t n, const E* __restrict x, bool first, T* __restrict sum) {
  if (first)
    for (std::int64_t i = 0; i < n; ++i) sum[i] = x[i];
  else
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

template <class T>
MPIGRAD_BODY void scaled_sum_body(std::int64_t n, std::int64_t terms, std::int64_t step, const T* __restrict x, T scale,
                                  T* __restrict y) {
  if (terms == 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = scale * x[i];
  } else if (terms == 2) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = scale * (x[i] + x[i + step]);
  } else if (terms == 3) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = scale * (x[i] + x[i + step] + x[i + 2 * step]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      T sum{0};
      for (std::int64_t t = 0; t < terms; ++t) sum += x[i + t * step];
      y[i] = scale * sum;
    }
  }
}

// sum (+)= x, and y[i] = scale * sum_t x[i + t*step] for t in [0, terms).
MPIGRAD_CLONES void add(std::int64_t n, const float* x, bool first, float* sum) { add_body(n, x, first, sum); }
MPIGRAD_CLONES void add(std::int64_t n, const double* x, bool first, double* sum) { add_body(n, x, first, sum); }
MPIGRAD_CLONES void add(std::int64_t n, const BFloat16* x, bool first, float* sum) { add_body(n, x, first, sum); }
MPIGRAD_CLONES void add(std::int64_t n, const Float16* x, bool first, float* sum) { add_body(n, x, first, sum); }

// n consecutive results, starting at `offset`.
template <class T>
struct Span {
  std::int64_t offset = 0, terms = 0, step = 0, n = 0;
};

MPIGRAD_CLONES void scaled_sums(std::int64_t count, const Span<float>* spans, const float* x, float scale, float* y) {
  for (std::int64_t i = 0; i < count; y += spans[i].n, ++i)
    scaled_sum_body(spans[i].n, spans[i].terms, spans[i].step, x + spans[i].offset, scale, y);
}
MPIGRAD_CLONES void scaled_sums(std::int64_t count, const Span<double>* spans, const double* x, double scale, double* y) {
  for (std::int64_t i = 0; i < count; y += spans[i].n, ++i)
    scaled_sum_body(spans[i].n, spans[i].terms, spans[i].step, x + spans[i].offset, scale, y);
}

template <class E, class T>
MPIGRAD_BODY void add_leaky_body(std::int64_t n, const E* __restrict x, bool first, T* __restrict sum, scalar::Fused fused) {
  const scalar::LeakyRelu f{fused};
  if (first)
    for (std::int64_t i = 0; i < n; ++i) sum[i] = f(T{x[i]});
  else
    for (std::int64_t i = 0; i < n; ++i) sum[i] += f(T{x[i]});
}

// y[i] = bit i of signs ? x[i] : factor * x[i]; x and y may be the same memory.
template <class T>
MPIGRAD_BODY void select_body(std::int64_t n, const std::uint8_t* signs, scalar::Fused fused, const T* x, T* y) {
  const scalar::LeakyReluAdjoint f{fused};
  for (std::int64_t i = 0; i + 8 <= n; i += 8) {
    const unsigned byte = signs[i / 8];
#pragma omp simd
    for (std::int64_t j = 0; j < 8; ++j) y[i + j] = f(x[i + j], T((byte & (1U << j)) != 0));
  }
  for (std::int64_t i = n / 8 * 8; i < n; ++i) y[i] = f(x[i], T(signs[i / 8] >> (i % 8) & 1));
}

// Bit j of the result is byte j, which is 0 or 1.
inline std::uint8_t packed(const std::uint8_t* bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes, 8);
    return static_cast<std::uint8_t>((eight * 0x0102040810204080ULL) >> 56);  // the bits of the products do not overlap
  }
  unsigned byte = 0;
  for (unsigned j = 0; j < 8; ++j) byte |= static_cast<unsigned>(bytes[j]) << j;
  return static_cast<std::uint8_t>(byte);
}

// Bit i of signs = !(x[i] <= 0): x[i] passes unchanged. The last byte is filled up with zeros.
template <class E>
MPIGRAD_BODY void signs_body(std::int64_t n, const E* __restrict x, std::uint8_t* __restrict signs) {
  constexpr std::int64_t most = 1024;
  std::uint8_t passes[most];
  for (std::int64_t begin = 0; begin < n; begin += most) {
    const std::int64_t count = std::min(most, n - begin);
    for (std::int64_t i = 0; i < count; ++i) passes[i] = x[begin + i] <= Computed<E>(0) ? 0 : 1;
    for (std::int64_t i = count; i % 8 != 0; ++i) passes[i] = 0;
    for (std::int64_t i = 0; i < count; i += 8) signs[(begin + i) / 8] = packed(passes + i);
  }
}

#define MPIGRAD_SELECT(T)                                                                                        \
  MPIGRAD_CLONES void select(std::int64_t n, const std::uint8_t* signs, scalar::Fused fused, const T* x, T* y) { \
    select_body(n, signs, fused, x, y);                                                                          \
  }
MPIGRAD_SELECT(float)
MPIGRAD_SELECT(double)
#undef MPIGRAD_SELECT
#define MPIGRAD_LEAKY(E)                                                                                         \
  MPIGRAD_CLONES void add_leaky(std::int64_t n, const E* x, bool first, Computed<E>* sum, scalar::Fused fused) { \
    add_leaky_body(n, x, first, sum, fused);                                                                     \
  }                                                                                                              \
  MPIGRAD_CLONES void write_signs(std::int64_t n, const E* x, std::uint8_t* signs) { signs_body(n, x, signs); }
MPIGRAD_FLOATING_TYPES(MPIGRAD_LEAKY)
#undef MPIGRAD_LEAKY

// The same for pixels of channels; each pixel's signs begin at a new byte. Computed at once if no bits are left over.
template <class T>
void select_pixels(std::int64_t pixels, std::int64_t channels, const std::uint8_t* signs, scalar::Fused fused, const T* x, T* y) {
  if (channels % 8 == 0) return select(pixels * channels, signs, fused, x, y);
  for (std::int64_t i = 0; i < pixels; ++i)
    select(channels, signs + i * octets(channels), fused, x + i * channels, y + i * channels);
}
template <class T>
void write_signs_of_pixels(std::int64_t pixels, std::int64_t channels, const T* x, std::uint8_t* signs) {
  if (channels % 8 == 0) return write_signs(pixels * channels, x, signs);
  for (std::int64_t i = 0; i < pixels; ++i) write_signs(channels, x + i * channels, signs + i * octets(channels));
}

// The sources of position j along one axis: `terms` elements, `step` apart, starting at `first`.
struct Sources {
  std::int64_t first = 0, terms = 0, step = 1;
};

// Forward: the inputs under output o.
Sources inputs_of(const PoolProblem& p, std::size_t a, std::int64_t o) {
  const std::int64_t start = o * p.stride[a] - p.pad_low[a];
  const Range taps = inside(start, p.dilation[a], p.kernel[a], p.in[a]);
  return {start + taps.begin * p.dilation[a], taps.end - taps.begin, p.dilation[a]};
}

// Adjoint: the outputs whose window contains input i. The taps that reach an output are equally spaced, and so are the outputs.
Sources outputs_of(const PoolProblem& p, std::size_t a, std::int64_t i) {
  Sources s{.first = 0, .terms = 0, .step = 1};
  for (std::int64_t t = p.kernel[a] - 1; t >= 0; --t) {
    const std::int64_t o = output_of(p, a, i, t);
    if (o < 0) continue;
    if (s.terms == 0) s.first = o;
    if (s.terms == 1) s.step = o - s.first;
    ++s.terms;
  }
  return s;
}

// Row operations of a pass without an activation: adds rows up as they are and leaves finished rows unchanged.
struct Plain {
  template <class E>
  void add(std::int64_t n, const E* x, bool first, Computed<E>* sum) const {
    cpu::add(n, x, first, sum);
  }
  template <class T>
  void finish(std::int64_t, T*) const {}
};

// to[n, d, h, w, :] = scale * sum of from[n, ., ., ., :] over the sources of d, h and w.
template <class E, class Find, class Rows = Plain>
void separable(std::int64_t batch, std::int64_t channels, const Extent3& from_extent, const Extent3& to_extent, Computed<E> scale,
               Find find, const E* from, E* to, const Rows& rows = {}) {
  using T = Computed<E>;
  constexpr bool rounds = !std::is_same_v<E, T>;
  if (batch * volume(to_extent) * channels == 0) return;
  const std::int64_t from_row = from_extent[2] * channels, to_row = to_extent[2] * channels;
  const auto spans = std::make_unique<Span<T>[]>(static_cast<std::size_t>(to_extent[2]));
  std::int64_t count = 0;
  for (std::int64_t w = 0; w < to_extent[2]; ++w) {
    const Sources s = find(2, w);
    const Span<T> next{s.first * channels, s.terms, s.step * channels, channels};
    auto& last = spans[static_cast<std::size_t>(std::max<std::int64_t>(0, count - 1))];
    if (count > 0 && next.terms == last.terms && next.step == last.step && next.offset == last.offset + last.n) last.n += next.n;
    else spans[static_cast<std::size_t>(count++)] = next;
  }
  const Span<T>* const along = spans.get();
  ParallelErrors errors;
#pragma omp parallel if (batch * volume(to_extent) * channels > 4096)
  {
    std::unique_ptr<T[]> sums;
    errors.guard([&] { sums = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(from_row + (rounds ? to_row : 0))); });
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < batch * to_extent[0] * to_extent[1]; ++row)
      errors.guard([&] {
        const std::int64_t n = row / to_extent[1] / to_extent[0];
        const Sources d = find(0, row / to_extent[1] % to_extent[0]), h = find(1, row % to_extent[1]);
        T* y = nullptr;
        if constexpr (rounds) y = sums.get() + from_row;
        else y = to + row * to_row;
        if (d.terms * h.terms == 0) {
          std::fill_n(y, to_row, T{0});
        } else {
          const E* start = from + ((n * from_extent[0] + d.first) * from_extent[1] + h.first) * from_row;
          for (std::int64_t i = 0; i < d.terms; ++i)
            for (std::int64_t j = 0; j < h.terms; ++j)
              rows.add(from_row, start + (i * d.step * from_extent[1] + j * h.step) * from_row, i + j == 0, sums.get());
          scaled_sums(count, along, sums.get(), scale, y);
        }
        rows.finish(row, y);
        if constexpr (rounds) detail::convert(y, to + row * to_row, to_row);
      });
  }
  errors.rethrow();
}

template <class E>
Computed<E> mean_scale(const PoolProblem& p) {
  return static_cast<Computed<E>>(1.0 / static_cast<double>(volume(p.kernel)));
}

}  // namespace

namespace separated {

template <class E>
void avg_pool_forward(const PoolProblem& p, const E* x, E* y) {
  separable(
      p.batch, p.channels, p.in, p.out, mean_scale<E>(p), [&](std::size_t a, std::int64_t o) { return inputs_of(p, a, o); }, x,
      y);
}

template void avg_pool_forward(const PoolProblem&, const float*, float*);

}  // namespace separated

template <>
void avg_pool_forward(const PoolProblem& p, const BFloat16* x, BFloat16* y) {
  separated::avg_pool_forward(p, x, y);
}
template <>
void avg_pool_forward(const PoolProblem& p, const Float16* x, Float16* y) {
  separated::avg_pool_forward(p, x, y);
}

template <>
void avg_pool_forward(const PoolProblem& p, const double* x, double* y) {
  separated::avg_pool_forward(p, x, y);
}

// oneDNN's adjoint clears gx and adds to it tap by tap, two to five times slower than this.
template <class E>
void avg_pool_adjoint(const PoolProblem& p, const E* gy, E* gx) {
  separable(
      p.batch, p.channels, p.out, p.in, mean_scale<E>(p), [&](std::size_t a, std::int64_t i) { return outputs_of(p, a, i); }, gy,
      gx);
}

#define MPIGRAD_MAKE(E) template void avg_pool_adjoint(const PoolProblem&, const E*, E*);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

namespace {

// Adds up rows of leaky_relu(x); after a row of outputs is finished, writes the signs of the rows of x assigned to it.
template <class E>
struct Leaky {
  const PoolProblem& p;
  scalar::Fused fused;
  const E* x;
  std::uint8_t* signs;
  void add(std::int64_t n, const E* row, bool first, Computed<E>* sum) const { add_leaky(n, row, first, sum, fused); }
  void finish(std::int64_t row, Computed<E>*) const {
    const auto d = owned_inputs(p, 0, row / p.out[1] % p.out[0]), h = owned_inputs(p, 1, row % p.out[1]);
    for (std::int64_t i = d.begin; i < d.end; ++i)
      for (std::int64_t j = h.begin; j < h.end; ++j) {
        const std::int64_t at = ((row / p.out[1] / p.out[0] * p.in[0] + i) * p.in[1] + j) * p.in[2];
        write_signs_of_pixels(p.in[2], p.channels, x + at * p.channels, signs + at * octets(p.channels));
      }
  }
};

// Multiplies finished rows of the adjoint by the factor where x <= 0.
struct Signed : Plain {
  const PoolProblem& p;
  scalar::Fused fused;
  const std::uint8_t* signs;
  Signed(const PoolProblem& problem, scalar::Fused activation, const std::uint8_t* bits)
      : p(problem), fused(activation), signs(bits) {}
  template <class T>
  void finish(std::int64_t row, T* y) const {
    select_pixels(p.in[2], p.channels, signs + row * p.in[2] * octets(p.channels), fused, y, y);
  }
};

}  // namespace

template <class E>
void leaky_avg_pool(const PoolProblem& p, scalar::Fused fused, const E* x, E* y, std::uint8_t* signs) {
  if (volume(p.out) == 0) {  // no output row would write the signs
    std::fill_n(signs, p.batch * volume(p.in) * octets(p.channels), std::uint8_t{0});
    return;
  }
  separable(
      p.batch, p.channels, p.in, p.out, mean_scale<E>(p), [&](std::size_t a, std::int64_t o) { return inputs_of(p, a, o); }, x, y,
      Leaky<E>{p, fused, x, signs});
}

template <class E>
void leaky_avg_pool_adjoint(const PoolProblem& p, scalar::Fused fused, const E* gy, const std::uint8_t* signs, E* gx) {
  separable(
      p.batch, p.channels, p.out, p.in, mean_scale<E>(p), [&](std::size_t a, std::int64_t i) { return outputs_of(p, a, i); }, gy,
      gx, Signed(p, fused, signs));
}

// Only second derivatives use it: computed in two passes.
template <class T>
void signed_avg_pool(const PoolProblem& p, scalar::Fused fused, const T* h, const std::uint8_t* signs, T* y) {
  const std::int64_t pixels = p.batch * volume(p.in);
  const auto selected = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(pixels * p.channels));
  select_pixels(pixels, p.channels, signs, fused, h, selected.get());
  avg_pool_forward(p, selected.get(), y);
}

template void signed_avg_pool(const PoolProblem&, scalar::Fused, const float*, const std::uint8_t*, float*);
template void signed_avg_pool(const PoolProblem&, scalar::Fused, const double*, const std::uint8_t*, double*);
#define MPIGRAD_MAKE(E)                                                                         \
  template void leaky_avg_pool(const PoolProblem&, scalar::Fused, const E*, E*, std::uint8_t*); \
  template void leaky_avg_pool_adjoint(const PoolProblem&, scalar::Fused, const E*, const std::uint8_t*, E*);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cpu
