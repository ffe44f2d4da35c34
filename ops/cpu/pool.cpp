// Average pooling in two steps per row of the result: the rows that the window's depth and height reach are added up, whole and
// contiguous, and the sum is then combined along the width. One pass over memory at 27 taps as at 8.

#include <memory>

#include "ops/cpu/clones.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/pool.h"
#include "ops/problems.h"

namespace mpigrad::cpu {

namespace {

template <class T>
MPIGRAD_BODY void add_body(std::int64_t n, const T* __restrict x, bool first, T* __restrict sum) {
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

template <class T>
struct Span {
  std::int64_t offset = 0, terms = 0, step = 0;
};

MPIGRAD_CLONES void scaled_sums(std::int64_t count, std::int64_t n, const Span<float>* spans, const float* x, float scale,
                                float* y) {
  for (std::int64_t i = 0; i < count; ++i)
    scaled_sum_body(n, spans[i].terms, spans[i].step, x + spans[i].offset, scale, y + i * n);
}
MPIGRAD_CLONES void scaled_sums(std::int64_t count, std::int64_t n, const Span<double>* spans, const double* x, double scale,
                                double* y) {
  for (std::int64_t i = 0; i < count; ++i)
    scaled_sum_body(n, spans[i].terms, spans[i].step, x + spans[i].offset, scale, y + i * n);
}

// The sources of position j along one axis: `terms` of them, `step` apart, from `first`.
struct Sources {
  std::int64_t first = 0, terms = 0, step = 1;
};

// Forward: the inputs under output o.
Sources inputs_of(const PoolProblem& p, std::size_t a, std::int64_t o) {
  const std::int64_t start = o * p.stride[a] - p.pad_low[a];
  const Range taps = inside(start, p.dilation[a], p.kernel[a], p.in[a]);
  return {start + taps.begin * p.dilation[a], taps.end - taps.begin, p.dilation[a]};
}

// Adjoint: the outputs whose window holds input i. The taps that reach an output are equally spaced, so the outputs are too.
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

// to[n, d, h, w, :] = scale * sum of from[n, ., ., ., :] over the sources of d, h and w.
template <class T, class Find>
void separable(std::int64_t batch, std::int64_t channels, const Extent3& from_extent, const Extent3& to_extent, T scale,
               Find find, const T* from, T* to) {
  if (batch * volume(to_extent) * channels == 0) return;
  const std::int64_t from_row = from_extent[2] * channels, to_row = to_extent[2] * channels;
  const auto spans = std::make_unique<Span<T>[]>(static_cast<std::size_t>(to_extent[2]));
  for (std::int64_t w = 0; w < to_extent[2]; ++w) {
    const Sources s = find(2, w);
    spans[static_cast<std::size_t>(w)] = {s.first * channels, s.terms, s.step * channels};
  }
  const Span<T>* const along = spans.get();
  ParallelErrors errors;
#pragma omp parallel if (batch * volume(to_extent) * channels > 4096)
  {
    std::unique_ptr<T[]> sums;
    errors.guard([&] { sums = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(from_row)); });
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < batch * to_extent[0] * to_extent[1]; ++row)
      errors.guard([&] {
        const std::int64_t n = row / to_extent[1] / to_extent[0];
        const Sources d = find(0, row / to_extent[1] % to_extent[0]), h = find(1, row % to_extent[1]);
        T* y = to + row * to_row;
        if (d.terms * h.terms == 0) {
          std::fill_n(y, to_row, T{0});
          return;
        }
        const T* start = from + ((n * from_extent[0] + d.first) * from_extent[1] + h.first) * from_row;
        for (std::int64_t i = 0; i < d.terms; ++i)
          for (std::int64_t j = 0; j < h.terms; ++j)
            add(from_row, start + (i * d.step * from_extent[1] + j * h.step) * from_row, i + j == 0, sums.get());
        scaled_sums(to_extent[2], channels, along, sums.get(), scale, y);
      });
  }
  errors.rethrow();
}

}  // namespace

namespace separated {

template <class T>
void avg_pool_forward(const PoolProblem& p, const T* x, T* y) {
  const auto scale = static_cast<T>(1.0 / static_cast<double>(volume(p.kernel)));
  separable(
      p.batch, p.channels, p.in, p.out, scale, [&](std::size_t a, std::int64_t o) { return inputs_of(p, a, o); }, x, y);
}

template void avg_pool_forward(const PoolProblem&, const float*, float*);

}  // namespace separated

template <>
void avg_pool_forward(const PoolProblem& p, const double* x, double* y) {
  separated::avg_pool_forward(p, x, y);
}

// oneDNN's adjoint clears gx and adds to it tap by tap, two to five times slower than this.
template <class T>
void avg_pool_adjoint(const PoolProblem& p, const T* gy, T* gx) {
  const auto scale = static_cast<T>(1.0 / static_cast<double>(volume(p.kernel)));
  separable(
      p.batch, p.channels, p.out, p.in, scale, [&](std::size_t a, std::int64_t i) { return outputs_of(p, a, i); }, gy, gx);
}

template void avg_pool_adjoint(const PoolProblem&, const float*, float*);
template void avg_pool_adjoint(const PoolProblem&, const double*, double*);

}  // namespace mpigrad::cpu
