// Convolutions of few products. Forward with stride 1: each channel's volume is copied with its padding, so that outputs that
// follow one another meet inputs that do, across rows and planes; those between rows are computed, too, and left out. Else one
// loop over rows of outputs for each tap.

#include "ops/conv/conv_kernels.h"

#include <algorithm>
#include <array>

#include "framework/base/target_clones.h"
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

constexpr std::int64_t room = 2048, together = 32;  // floats of padded volumes; sums in registers

// y[i] += sum_t w[t * w_step] x[offsets[t] + i]; both volumes have room up to a multiple of `together`.
MPIGRAD_CLONES void add_taps(std::int64_t n, std::int64_t taps, const std::int64_t* offsets, const float* w, std::int64_t w_step,
                             const float* __restrict x, float* __restrict y) {
  for (std::int64_t i = 0; i < n; i += together) {
    float sums[together];
    for (std::int64_t s = 0; s < together; ++s) sums[s] = y[i + s];
    for (std::int64_t t = 0; t < taps; ++t)
      for (std::int64_t s = 0; s < together; ++s) sums[s] += w[t * w_step] * x[offsets[t] + i + s];
    for (std::int64_t s = 0; s < together; ++s) y[i + s] = sums[s];
  }
}

// The forward pass with stride 1; false, without doing anything, if it is none or does not fit.
bool conv_padded(const ConvProblem& p, const float* x, const float* w, float* y) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  std::array<std::int64_t, 3> padded{};
  for (std::size_t a = 0; a < 3; ++a) padded[a] = p.out[a] + (p.kernel[a] - 1) * p.dilation[a];
  const auto place = [&](std::int64_t d, std::int64_t h, std::int64_t v) { return (d * padded[1] + h) * padded[2] + v; };
  const std::int64_t outputs = place(p.out[0] - 1, p.out[1] - 1, p.out[2]);
  if (volume(p.stride) != 1 || volume(padded) > room || taps > room || volume(p.out) == 0) return false;
  if (std::min({p.pad_low[0], p.pad_low[1], p.pad_low[2]}) < 0) return false;
  std::array<std::int64_t, room> offsets;
  for (std::int64_t t = 0, d = 0; d < p.kernel[0]; ++d)
    for (std::int64_t h = 0; h < p.kernel[1]; ++h)
      for (std::int64_t v = 0; v < p.kernel[2]; ++v)
        offsets[static_cast<std::size_t>(t++)] = place(d * p.dilation[0], h * p.dilation[1], v * p.dilation[2]);
  std::array<float, room + together> volume_of_channel, sums;
  const auto own = [&](std::size_t a) { return Range{p.pad_low[a], std::min(padded[a], p.pad_low[a] + p.in[a])}; };
  const Range d_own = own(0), h_own = own(1), w_own = own(2);
  std::fill_n(volume_of_channel.begin(), volume(padded) + together, 0.0F);
  for (std::int64_t n = 0; n < p.batch; ++n)
    for (std::int64_t k = 0; k < p.out_channels; ++k) {
      std::fill_n(sums.begin(), outputs + together, 0.0F);
      for (std::int64_t c = 0; c < cg; ++c) {
        const float* from = x + n * volume(p.in) * p.in_channels + k / kg * cg + c;
        for (std::int64_t d = d_own.begin; d < d_own.end; ++d)
          for (std::int64_t h = h_own.begin; h < h_own.end; ++h)
            for (std::int64_t v = w_own.begin; v < w_own.end; ++v)
              volume_of_channel[static_cast<std::size_t>(place(d, h, v))] =
                  from[(((d - p.pad_low[0]) * p.in[1] + h - p.pad_low[1]) * p.in[2] + v - p.pad_low[2]) * p.in_channels];
        add_taps(outputs, taps, offsets.data(), w + k * taps * cg + c, cg, volume_of_channel.data(), sums.data());
      }
      float* to = y + n * volume(p.out) * p.out_channels + k;
      for (std::int64_t d = 0; d < p.out[0]; ++d)
        for (std::int64_t h = 0; h < p.out[1]; ++h)
          for (std::int64_t v = 0; v < p.out[2]; ++v, to += p.out_channels) *to = sums[static_cast<std::size_t>(place(d, h, v))];
    }
  return true;
}

}  // namespace

bool suits(const ConvProblem& p) {
  return p.batch * volume(p.out) * volume(p.kernel) * (p.in_channels / p.groups) * p.out_channels <= 4096;
}

void conv_forward(const ConvProblem& p, const float* x, const float* w, float* y, const Epilogue& e) {
  const std::int64_t rows = p.batch * volume(p.out);
  if (!conv_padded(p, x, w, y)) {
    std::fill_n(y, rows * p.out_channels, 0.0F);
    for_rows(p, [&](std::int64_t from, std::int64_t at, std::int64_t to, std::int64_t count, std::int64_t dx, std::int64_t dy) {
      const float weight = w[at];
      for (std::int64_t i = 0; i < count; ++i) y[to + i * dy] += weight * x[from + i * dx];
    });
  }
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
