// Average pooling as plain loops, channels innermost.

#include <vector>

#include "ops/kernel/problems.h"
#include "ops/pool/pool_kernels.h"

namespace mpigrad::cpu::reference {

// y[n,o,c] = 1/|kernel| sum_t x[n, o*stride + t*dilation - pad_low, c]
template <class T>
void avg_pool_forward(const PoolProblem& p, const T* x, T* y) {
  const std::int64_t rows = p.batch * p.out[0] * p.out[1], channels = p.channels;
  const double scale = 1.0 / static_cast<double>(volume(p.kernel));
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t oh = row % p.out[1], od = row / p.out[1] % p.out[0], n = row / p.out[1] / p.out[0];
    const std::int64_t d0 = od * p.stride[0] - p.pad_low[0], h0 = oh * p.stride[1] - p.pad_low[1];
    const Range td = inside(d0, p.dilation[0], p.kernel[0], p.in[0]), th = inside(h0, p.dilation[1], p.kernel[1], p.in[1]);
    std::vector<double> sums(static_cast<std::size_t>(channels));
    double* s = sums.data();
    for (std::int64_t ow = 0; ow < p.out[2]; ++ow) {
      const std::int64_t w0 = ow * p.stride[2] - p.pad_low[2];
      const Range tw = inside(w0, p.dilation[2], p.kernel[2], p.in[2]);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t d = td.begin; d < td.end; ++d)
        for (std::int64_t h = th.begin; h < th.end; ++h)
          for (std::int64_t v = tw.begin; v < tw.end; ++v) {
            const T* xs = x + (((n * p.in[0] + d0 + d * p.dilation[0]) * p.in[1] + h0 + h * p.dilation[1]) * p.in[2] + w0 +
                               v * p.dilation[2]) *
                                  channels;
            for (std::int64_t c = 0; c < channels; ++c) s[c] += static_cast<double>(xs[c]);
          }
      T* out = y + (row * p.out[2] + ow) * channels;
      for (std::int64_t c = 0; c < channels; ++c) out[c] = static_cast<T>(scale * s[c]);
    }
  }
}

// gx[n,i,c] = 1/|kernel| sum_{t : o*stride + t*dilation - pad_low = i} gy[n,o,c]
template <class T>
void avg_pool_adjoint(const PoolProblem& p, const T* gy, T* gx) {
  const std::int64_t rows = p.batch * p.in[0] * p.in[1], channels = p.channels;
  const double scale = 1.0 / static_cast<double>(volume(p.kernel));
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t ih = row % p.in[1], id = row / p.in[1] % p.in[0], n = row / p.in[1] / p.in[0];
    std::vector<double> sums(static_cast<std::size_t>(channels));
    double* s = sums.data();
    for (std::int64_t iw = 0; iw < p.in[2]; ++iw) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t d = 0; d < p.kernel[0]; ++d) {
        const std::int64_t od = output_of(p, 0, id, d);
        if (od < 0) continue;
        for (std::int64_t h = 0; h < p.kernel[1]; ++h) {
          const std::int64_t oh = output_of(p, 1, ih, h);
          if (oh < 0) continue;
          for (std::int64_t v = 0; v < p.kernel[2]; ++v) {
            const std::int64_t ow = output_of(p, 2, iw, v);
            if (ow < 0) continue;
            const T* g = gy + (((n * p.out[0] + od) * p.out[1] + oh) * p.out[2] + ow) * channels;
            for (std::int64_t c = 0; c < channels; ++c) s[c] += static_cast<double>(g[c]);
          }
        }
      }
      T* out = gx + (row * p.in[2] + iw) * channels;
      for (std::int64_t c = 0; c < channels; ++c) out[c] = static_cast<T>(scale * s[c]);
    }
  }
}

template void avg_pool_forward(const PoolProblem&, const float*, float*);
template void avg_pool_forward(const PoolProblem&, const double*, double*);
template void avg_pool_adjoint(const PoolProblem&, const float*, float*);
template void avg_pool_adjoint(const PoolProblem&, const double*, double*);

}  // namespace mpigrad::cpu::reference
