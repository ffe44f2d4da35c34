#include "ops/conv/conv_gathered.h"

#include <omp.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "ops/backends/blas/blas.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu::gathered {

namespace {

constexpr std::int64_t gathered_elements = 1 << 16;  // limit of one thread's gathered rows, which then stay in the second cache

template <class T>
using Buffer = std::unique_ptr<T[]>;

template <class T>
Buffer<T> buffer(std::int64_t elements) {
  return std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(elements));
}

std::array<std::int64_t, 4> position_of(std::int64_t index, const Extent3& extent) {
  return {index / extent[2] / extent[1] / extent[0], index / extent[2] / extent[1] % extent[0], index / extent[2] % extent[1],
          index % extent[2]};
}

// row[v, c] = x[n, id, ih, o*stride + v*dilation - pad_low, c] for the taps v along the last axis, zeros outside.
template <class T>
void gather_taps(const ConvProblem& p, std::int64_t n, std::int64_t id, std::int64_t ih, std::int64_t ow, std::int64_t channel,
                 const T* x, T* row) {
  const std::int64_t cg = p.in_channels / p.groups;
  if (id < 0 || id >= p.in[0] || ih < 0 || ih >= p.in[1]) {
    std::fill_n(row, p.kernel[2] * cg, T{0});
    return;
  }
  const std::int64_t w0 = ow * p.stride[2] - p.pad_low[2];
  const Range taps = inside(w0, p.dilation[2], p.kernel[2], p.in[2]);
  const T* xs = x + ((n * p.in[0] + id) * p.in[1] + ih) * p.in[2] * p.in_channels + channel;
  std::fill_n(row, taps.begin * cg, T{0});
  if (p.dilation[2] == 1 && p.groups == 1)
    std::copy_n(xs + (w0 + taps.begin) * p.in_channels, (taps.end - taps.begin) * cg, row + taps.begin * cg);
  else
    for (std::int64_t v = taps.begin; v < taps.end; ++v)
      std::copy_n(xs + (w0 + v * p.dilation[2]) * p.in_channels, cg, row + v * cg);
  std::fill_n(row + taps.end * cg, (p.kernel[2] - taps.end) * cg, T{0});
}

// Destination of output position (n, d, h, w) of a convolution: y + n*batch + d*step[0] + h*step[1] + w*step[2].
template <class T>
struct Destination {
  T* y = nullptr;
  std::int64_t batch = 0;
  Extent3 step{};
};

// The convolution as y[o, :] = row(o) w^T, where row(o) holds the kernel volume of inputs around o, in tiles of rows.
template <class T>
void convolve(const ConvProblem& p, const T* x, const T* w, const Destination<T>& to, const Epilogue& e) {
  const std::int64_t cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const std::int64_t width = volume(p.kernel) * cg, run = p.kernel[2] * cg, positions = p.batch * volume(p.out);
  if (positions == 0 || kg == 0) return;
  const std::int64_t threads = omp_get_max_threads();
  const std::int64_t most = std::clamp<std::int64_t>(gathered_elements / std::max<std::int64_t>(1, width), 16, 512);
  const std::int64_t tile = std::clamp<std::int64_t>(ceil_div(positions, threads), 1, most), tiles = ceil_div(positions, tile);
  // With few positions (the last layers) the threads share the channels instead.
  const std::int64_t wanted = tiles * p.groups >= threads ? 1 : ceil_div(threads, tiles * p.groups);
  const std::int64_t part = std::max<std::int64_t>(ceil_div(kg, wanted), std::min<std::int64_t>(kg, 16)),
                     parts = ceil_div(kg, part);
  ParallelErrors errors;
#pragma omp parallel if (positions * width * kg > 4096)
  {
    Buffer<T> rows, products;
    errors.guard([&] { rows = buffer<T>(tile * width), products = buffer<T>(tile * part); });
#pragma omp for schedule(static)
    for (std::int64_t task = 0; task < tiles * p.groups * parts; ++task)
      errors.guard([&] {
        const std::int64_t first = task / parts / p.groups * tile, count = std::min(tile, positions - first);
        const std::int64_t group = task / parts % p.groups, k = task % parts * part, n = std::min(part, kg - k);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = position_of(first + i, p.out);
          T* row = rows.get() + i * width;
          for (std::int64_t d = 0; d < p.kernel[0]; ++d)
            for (std::int64_t h = 0; h < p.kernel[1]; ++h, row += run)
              gather_taps(p, at[0], at[1] * p.stride[0] + d * p.dilation[0] - p.pad_low[0],
                          at[2] * p.stride[1] + h * p.dilation[1] - p.pad_low[1], at[3], group * cg, x, row);
        }
        const std::int64_t channel = group * kg + k;
        gemm(false, true, count, n, width, rows.get(), width, w + channel * width, width, false, products.get(), n);
        apply_epilogue(e, count, channel, n, products.get(), n);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = position_of(first + i, p.out);
          T* y = to.y + at[0] * to.batch + at[1] * to.step[0] + at[2] * to.step[1] + at[3] * to.step[2] + channel;
          std::copy_n(products.get() + i * n, n, y);
        }
      });
  }
  errors.rethrow();
}

// Along one axis the inputs i = first + q*stride are reached by the taps t = last - j*step, j in [0, count), from output
// base + q + j*dilation: with respect to gy, a convolution of stride 1.
struct Phase {
  std::int64_t first = 0, inputs = 0, last = 0, step = 1, count = 0, base = 0, dilation = 1;
};

std::vector<Phase> phases_of(const ConvProblem& p, std::size_t a) {
  std::vector<Phase> phases;
  const std::int64_t stride = p.stride[a], common = std::gcd(stride, p.dilation[a]);
  for (std::int64_t first = 0; first < std::min(stride, p.in[a]); ++first) {
    Phase phase{
        .first = first, .inputs = ceil_div(p.in[a] - first, stride), .step = stride / common, .dilation = p.dilation[a] / common};
    for (std::int64_t t = 0; t < p.kernel[a]; ++t)
      if ((first + p.pad_low[a] - t * p.dilation[a]) % stride == 0) {
        phase.last = t;
        phase.base = (first + p.pad_low[a] - t * p.dilation[a]) / stride;
        ++phase.count;
      }
    phases.push_back(phase);
  }
  return phases;
}

// conv_data for few outputs: adds every output's contribution to the inputs under its window, gy[o, :] w = columns[o, (t, c)].
// The weights are read once, in memory order.
template <class T>
void conv_data_few(const ConvProblem& p, const T* gy, const T* w, T* gx, const Epilogue& e) {
  const std::int64_t cg = p.in_channels / p.groups, kg = p.out_channels / p.groups, positions = p.batch * volume(p.out);
  const std::int64_t width = volume(p.kernel) * cg, all = width * p.groups;
  const std::int64_t wanted = std::max<std::int64_t>(1, ceil_div(2 * omp_get_max_threads(), p.groups));
  const std::int64_t part = std::clamp<std::int64_t>(ceil_div(width, wanted), 1, 1024), parts = ceil_div(width, part);
  const Buffer<T> columns = buffer<T>(positions * all);
  T* const column = columns.get();
  ParallelErrors errors;
#pragma omp parallel if (positions * all * kg > 4096)
  {
#pragma omp for schedule(static)
    for (std::int64_t task = 0; task < p.groups * parts; ++task)
      errors.guard([&] {
        const std::int64_t group = task / parts, first = task % parts * part;
        gemm(false, false, positions, std::min(part, width - first), kg, gy + group * kg, p.out_channels,
             w + group * kg * width + first, width, false, column + group * width + first, all);
      });
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < p.batch * volume(p.in); ++i) {
      const auto at = position_of(i, p.in);
      T* to = gx + i * p.in_channels;
      std::fill_n(to, p.in_channels, T{0});
      for (std::int64_t t = 0; t < volume(p.kernel); ++t) {
        const auto tap = position_of(t, p.kernel);
        const std::int64_t od = output_of(p, 0, at[1], tap[1]), oh = output_of(p, 1, at[2], tap[2]),
                           ow = output_of(p, 2, at[3], tap[3]);
        if (od < 0 || oh < 0 || ow < 0) continue;
        const T* from = column + (((at[0] * p.out[0] + od) * p.out[1] + oh) * p.out[2] + ow) * all + t * cg;
        for (std::int64_t group = 0; group < p.groups; ++group)
          for (std::int64_t c = 0; c < cg; ++c) to[group * cg + c] += from[group * width + c];
      }
      apply_epilogue(e, 1, 0, p.in_channels, to, p.in_channels);
    }
  }
  errors.rethrow();
}

}  // namespace

template <class T>
void conv_forward(const ConvProblem& p, const T* x, const T* w, T* y, const Epilogue& e) {
  const std::int64_t row = p.out[2] * p.out_channels, plane = p.out[1] * row;
  convolve(p, x, w, Destination<T>{y, p.out[0] * plane, {plane, row, p.out_channels}}, e);
}

template <class T>
void conv_data(const ConvProblem& p, const T* gy, const T* w, T* gx, const Epilogue& e) {
  const std::int64_t taps = volume(p.kernel), cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  if (p.batch * volume(p.out) <= kg) return conv_data_few(p, gy, w, gx, e);
  const std::int64_t row = p.in[2] * p.in_channels, plane = p.in[1] * row;
  for (const Phase& d : phases_of(p, 0))
    for (const Phase& h : phases_of(p, 1))
      for (const Phase& v : phases_of(p, 2)) {
        const ConvProblem sub{.batch = p.batch,
                              .in = p.out,
                              .out = {d.inputs, h.inputs, v.inputs},
                              .kernel = {d.count, h.count, v.count},
                              .stride = {1, 1, 1},
                              .dilation = {d.dilation, h.dilation, v.dilation},
                              .pad_low = {-d.base, -h.base, -v.base},
                              .in_channels = p.out_channels,
                              .out_channels = p.in_channels,
                              .groups = p.groups};
        // This phase's taps, last first: flipped[g, c, t, k] = w[g, k, t, c].
        const std::int64_t count = volume(sub.kernel);
        const Buffer<T> flipped = buffer<T>(p.in_channels * count * kg);
        T* const to = flipped.get();
        const Extent3 last{d.last, h.last, v.last}, step{d.step, h.step, v.step};
#pragma omp parallel for schedule(static) if (p.in_channels * count * kg > 4096)
        for (std::int64_t c = 0; c < p.in_channels; ++c)
          for (std::int64_t j = 0; j < count; ++j) {
            const auto at = position_of(j, sub.kernel);
            const std::int64_t t =
                ((last[0] - at[1] * step[0]) * p.kernel[1] + last[1] - at[2] * step[1]) * p.kernel[2] + last[2] - at[3] * step[2];
            const T* from = w + (c / cg * kg * taps + t) * cg + c % cg;
            for (std::int64_t k = 0; k < kg; ++k) to[(c * count + j) * kg + k] = from[k * taps * cg];
          }
        convolve(sub, gy, to,
                 Destination<T>{gx + d.first * plane + h.first * row + v.first * p.in_channels,
                                p.in[0] * plane,
                                {p.stride[0] * plane, p.stride[1] * row, p.stride[2] * p.in_channels}},
                 e);
      }
}

// gw[k, (t, c)] = sum_o gy[o, k] row(o)[t, c], one row of taps along the last axis and one block of k per task: no two tasks
// share a sum, so the result does not depend on the number of threads.
template <class T>
void conv_weight(const ConvProblem& p, const T* x, const T* gy, T* gw) {
  const std::int64_t cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const std::int64_t run = p.kernel[2] * cg, lines = p.kernel[0] * p.kernel[1], positions = p.batch * volume(p.out);
  if (kg == 0 || run == 0 || lines == 0) return;
  if (positions == 0) {
    std::fill_n(gw, p.out_channels * lines * run, T{0});
    return;
  }
  const std::int64_t tile = std::clamp<std::int64_t>(gathered_elements / run, 16, 1024);
  const std::int64_t wanted = ceil_div(2 * omp_get_max_threads(), lines * p.groups);
  const std::int64_t part = std::max<std::int64_t>(ceil_div(kg, wanted), std::min<std::int64_t>(kg, 16)),
                     parts = ceil_div(kg, part);
  ParallelErrors errors;
#pragma omp parallel if (positions * lines * run * kg > 4096)
  {
    Buffer<T> rows;
    errors.guard([&] { rows = buffer<T>(std::min(tile, positions) * run); });
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < lines * p.groups * parts; ++task)
      errors.guard([&] {
        const std::int64_t line = task / parts % lines, group = task / parts / lines;
        const std::int64_t k = group * kg + task % parts * part, n = std::min(part, kg - task % parts * part);
        const std::int64_t d0 = line / p.kernel[1] * p.dilation[0] - p.pad_low[0];
        const std::int64_t h0 = line % p.kernel[1] * p.dilation[1] - p.pad_low[1];
        for (std::int64_t first = 0; first < positions; first += tile) {
          const std::int64_t count = std::min(tile, positions - first);
          for (std::int64_t i = 0; i < count; ++i) {
            const auto at = position_of(first + i, p.out);
            gather_taps(p, at[0], at[1] * p.stride[0] + d0, at[2] * p.stride[1] + h0, at[3], group * cg, x, rows.get() + i * run);
          }
          gemm(true, false, n, run, count, gy + first * p.out_channels + k, p.out_channels, rows.get(), run, first > 0,
               gw + (k * lines + line) * run, lines * run);
        }
      });
  }
  errors.rethrow();
}

template void conv_forward(const ConvProblem&, const float*, const float*, float*, const Epilogue&);
template void conv_forward(const ConvProblem&, const double*, const double*, double*, const Epilogue&);
template void conv_data(const ConvProblem&, const float*, const float*, float*, const Epilogue&);
template void conv_data(const ConvProblem&, const double*, const double*, double*, const Epilogue&);
template void conv_weight(const ConvProblem&, const float*, const float*, float*);
template void conv_weight(const ConvProblem&, const double*, const double*, double*);

}  // namespace mpigrad::cpu::gathered
