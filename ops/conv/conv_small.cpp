// Convolutions of few products: one loop over rows of outputs for each tap, vectorised along the row.

#include "ops/conv/conv_kernels.h"

#include <algorithm>

#include "ops/backends/blas/blas.h"

namespace mpigrad::cpu::small {
namespace {

// Calls row(x, w, y, count, x_step, y_step) for each tap, pair of channels and row of outputs: offsets of the first input, the
// weight and the first output that meet there, how many outputs there are, and the distances between consecutive ones.
template <class Row>
void for_rows(const ConvProblem& p, const Row& row) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const auto range = [&](std::size_t a, std::int64_t t) {
    return inside(t * p.dilation[a] - p.pad_low[a], p.stride[a], p.out[a], p.in[a]);
  };
  const auto input = [&](std::size_t a, std::int64_t o, std::int64_t t) {
    return o * p.stride[a] + t * p.dilation[a] - p.pad_low[a];
  };
  for (std::int64_t td = 0; td < p.kernel[0]; ++td)
    for (std::int64_t th = 0; th < p.kernel[1]; ++th)
      for (std::int64_t tw = 0; tw < p.kernel[2]; ++tw) {
        const Range d = range(0, td), h = range(1, th), w = range(2, tw);
        if (w.begin == w.end) continue;
        for (std::int64_t n = 0; n < p.batch; ++n)
          for (std::int64_t od = d.begin; od < d.end; ++od)
            for (std::int64_t oh = h.begin; oh < h.end; ++oh) {
              const std::int64_t x =
                  ((n * p.in[0] + input(0, od, td)) * p.in[1] + input(1, oh, th)) * p.in[2] + input(2, w.begin, tw);
              const std::int64_t y = ((n * p.out[0] + od) * p.out[1] + oh) * p.out[2] + w.begin;
              for (std::int64_t k = 0; k < p.out_channels; ++k)
                for (std::int64_t c = 0; c < cg; ++c)
                  row(x * p.in_channels + k / kg * cg + c, (k * taps + (td * p.kernel[1] + th) * p.kernel[2] + tw) * cg + c,
                      y * p.out_channels + k, w.end - w.begin, p.stride[2] * p.in_channels, p.out_channels);
            }
      }
}

}  // namespace

bool suits(const ConvProblem& p) {
  return p.batch * volume(p.out) * volume(p.kernel) * (p.in_channels / p.groups) * p.out_channels <= 4096;
}

void conv_forward(const ConvProblem& p, const float* x, const float* w, float* y, const Epilogue& e) {
  const std::int64_t rows = p.batch * volume(p.out);
  std::fill_n(y, rows * p.out_channels, 0.0F);
  for_rows(p, [&](std::int64_t from, std::int64_t at, std::int64_t to, std::int64_t count, std::int64_t dx, std::int64_t dy) {
    const float weight = w[at];
    for (std::int64_t i = 0; i < count; ++i) y[to + i * dy] += weight * x[from + i * dx];
  });
  if (!e.empty()) apply_epilogue(e, rows, 0, p.out_channels, y, p.out_channels);
}

void conv_data(const ConvProblem& p, const float* gy, const float* w, float* gx, const Epilogue& e) {
  const std::int64_t rows = p.batch * volume(p.in);
  std::fill_n(gx, rows * p.in_channels, 0.0F);
  for_rows(p, [&](std::int64_t from, std::int64_t at, std::int64_t to, std::int64_t count, std::int64_t dx, std::int64_t dy) {
    const float weight = w[at];
    for (std::int64_t i = 0; i < count; ++i) gx[from + i * dx] += weight * gy[to + i * dy];
  });
  if (!e.empty()) apply_epilogue(e, rows, 0, p.in_channels, gx, p.in_channels);
}

void conv_weight(const ConvProblem& p, const float* x, const float* gy, float* gw) {
  std::fill_n(gw, p.out_channels * volume(p.kernel) * (p.in_channels / p.groups), 0.0F);
  for_rows(p, [&](std::int64_t from, std::int64_t at, std::int64_t to, std::int64_t count, std::int64_t dx, std::int64_t dy) {
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += gy[to + i * dy] * x[from + i * dx];
    gw[at] += sum;
  });
}

}  // namespace mpigrad::cpu::small
