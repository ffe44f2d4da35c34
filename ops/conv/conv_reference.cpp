// The three convolutions as plain loops, the reference for the fast kernels. Sums in double.

#include <vector>

#include "ops/conv/conv_kernels.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu::reference {

namespace {

template <class T>
T finish(double value, const Epilogue& e, std::int64_t channel) {
  if (e.bias != nullptr) value += static_cast<double>(static_cast<const T*>(e.bias)[channel]);
  if (value < 0) value = e.fused.below(value);
  return static_cast<T>(value);
}

}  // namespace

// y[n,o,k] = sum_{t,c} x[n, o*stride + t*dilation - pad_low, c] w[k,t,c]
template <class T>
void conv_forward(const ConvProblem& p, const T* x, const T* w, T* y, const Epilogue& epilogue) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const std::int64_t rows = p.batch * p.out[0] * p.out[1];
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t oh = row % p.out[1], od = row / p.out[1] % p.out[0], n = row / p.out[1] / p.out[0];
    const std::int64_t d0 = od * p.stride[0] - p.pad_low[0], h0 = oh * p.stride[1] - p.pad_low[1];
    const Range td = inside(d0, p.dilation[0], p.kernel[0], p.in[0]), th = inside(h0, p.dilation[1], p.kernel[1], p.in[1]);
    for (std::int64_t ow = 0; ow < p.out[2]; ++ow) {
      const std::int64_t w0 = ow * p.stride[2] - p.pad_low[2];
      const Range tw = inside(w0, p.dilation[2], p.kernel[2], p.in[2]);
      for (std::int64_t k = 0; k < p.out_channels; ++k) {
        double sum = 0;
        for (std::int64_t d = td.begin; d < td.end; ++d)
          for (std::int64_t h = th.begin; h < th.end; ++h)
            for (std::int64_t v = tw.begin; v < tw.end; ++v) {
              const std::int64_t i =
                  ((n * p.in[0] + d0 + d * p.dilation[0]) * p.in[1] + h0 + h * p.dilation[1]) * p.in[2] + w0 + v * p.dilation[2];
              const T* xs = x + i * p.in_channels + k / kg * cg;
              const T* ws = w + (k * taps + (d * p.kernel[1] + h) * p.kernel[2] + v) * cg;
#pragma omp simd reduction(+ : sum)
              for (std::int64_t c = 0; c < cg; ++c) sum += static_cast<double>(xs[c]) * static_cast<double>(ws[c]);
            }
        y[(row * p.out[2] + ow) * p.out_channels + k] = finish<T>(sum, epilogue, k);
      }
    }
  }
}

// gx[n,i,c] = sum_{t,k : o*stride + t*dilation - pad_low = i} gy[n,o,k] w[k,t,c]; gathers, so that no two threads write the same
// element.
template <class T>
void conv_data(const ConvProblem& p, const T* gy, const T* w, T* gx, const Epilogue& epilogue) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const std::int64_t rows = p.batch * p.in[0] * p.in[1];
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t ih = row % p.in[1], id = row / p.in[1] % p.in[0], n = row / p.in[1] / p.in[0];
    std::vector<double> sums(static_cast<std::size_t>(p.in_channels));
    double* s = sums.data();
    for (std::int64_t iw = 0; iw < p.in[2]; ++iw) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t d = 0; d < p.kernel[0]; ++d)
        for (std::int64_t h = 0; h < p.kernel[1]; ++h)
          for (std::int64_t v = 0; v < p.kernel[2]; ++v) {
            const std::int64_t od = output_of(p, 0, id, d), oh = output_of(p, 1, ih, h), ow = output_of(p, 2, iw, v);
            if (od < 0 || oh < 0 || ow < 0) continue;
            const T* g = gy + (((n * p.out[0] + od) * p.out[1] + oh) * p.out[2] + ow) * p.out_channels;
            for (std::int64_t k = 0; k < p.out_channels; ++k) {
              const T* ws = w + (k * taps + (d * p.kernel[1] + h) * p.kernel[2] + v) * cg;
              const double gk = static_cast<double>(g[k]);
              double* sg = s + k / kg * cg;
              for (std::int64_t c = 0; c < cg; ++c) sg[c] += gk * static_cast<double>(ws[c]);
            }
          }
      T* out = gx + (row * p.in[2] + iw) * p.in_channels;
      for (std::int64_t c = 0; c < p.in_channels; ++c) out[c] = finish<T>(s[c], epilogue, c);
    }
  }
}

// gw[k,t,c] = sum_{n,o} gy[n,o,k] x[n, o*stride + t*dilation - pad_low, c]
template <class T>
void conv_weight(const ConvProblem& p, const T* x, const T* gy, T* gw) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
#pragma omp parallel for schedule(static)
  for (std::int64_t kt = 0; kt < p.out_channels * taps; ++kt) {
    const std::int64_t k = kt / taps, t = kt % taps;
    const std::int64_t d0 = t / p.kernel[2] / p.kernel[1] * p.dilation[0] - p.pad_low[0];
    const std::int64_t h0 = t / p.kernel[2] % p.kernel[1] * p.dilation[1] - p.pad_low[1];
    const std::int64_t w0 = t % p.kernel[2] * p.dilation[2] - p.pad_low[2];
    const Range rd = inside(d0, p.stride[0], p.out[0], p.in[0]), rh = inside(h0, p.stride[1], p.out[1], p.in[1]),
                rw = inside(w0, p.stride[2], p.out[2], p.in[2]);
    std::vector<double> sums(static_cast<std::size_t>(cg));
    double* s = sums.data();
    for (std::int64_t n = 0; n < p.batch; ++n)
      for (std::int64_t od = rd.begin; od < rd.end; ++od)
        for (std::int64_t oh = rh.begin; oh < rh.end; ++oh) {
          const T* g = gy + ((n * p.out[0] + od) * p.out[1] + oh) * p.out[2] * p.out_channels + k;
          const T* xs =
              x + (((n * p.in[0] + d0 + od * p.stride[0]) * p.in[1] + h0 + oh * p.stride[1]) * p.in[2] + w0) * p.in_channels +
              k / kg * cg;
          for (std::int64_t ow = rw.begin; ow < rw.end; ++ow) {
            const double gk = static_cast<double>(g[ow * p.out_channels]);
            const T* row = xs + ow * p.stride[2] * p.in_channels;
            for (std::int64_t c = 0; c < cg; ++c) s[c] += gk * static_cast<double>(row[c]);
          }
        }
    for (std::int64_t c = 0; c < cg; ++c) gw[kt * cg + c] = static_cast<T>(s[c]);
  }
}

template void conv_forward(const ConvProblem&, const float*, const float*, float*, const Epilogue&);
template void conv_forward(const ConvProblem&, const double*, const double*, double*, const Epilogue&);
template void conv_data(const ConvProblem&, const float*, const float*, float*, const Epilogue&);
template void conv_data(const ConvProblem&, const double*, const double*, double*, const Epilogue&);
template void conv_weight(const ConvProblem&, const float*, const float*, float*);
template void conv_weight(const ConvProblem&, const double*, const double*, double*);

}  // namespace mpigrad::cpu::reference
