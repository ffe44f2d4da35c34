// Along one axis, two outputs y of three taps w are y = A^T((G w) * (B^T x)), with x the four inputs around them; in three
// dimensions (or two) A, B and G are applied along each axis. For 2 x 2 x 2 outputs this is one product for each of 64 positions
// (16), and with channels one matrix product for each: tiles x channels times channels x channels. A block of tiles is
// transformed, multiplied and transformed back while it is in the caches. The data gradient is the same with reversed taps; the
// weight gradient, G^T((A gy) * (B^T x)), is the transpose, with products added up over tiles.

#include "ops/backends/winograd/winograd.h"

#include <omp.h>

#include <algorithm>
#include <array>

#include "ops/backends/winograd/winograd_kernels.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::cpu::winograd {
namespace {

constexpr std::int64_t block_floats = 3 << 16;              // approximate upper limit of a thread's transformed tiles: 768 KiB
constexpr std::int64_t most_rows = 3072, least_tiles = 12;  // most_rows: of all positions, 48 tiles in three dimensions
constexpr std::int64_t weight_floats = 2 << 20;             // approximate upper limit of transformed weights in memory: 8 MiB
constexpr std::int64_t most_outputs = 128, least_outputs = 64;     // output channels of a block
constexpr std::int64_t gradient_rows = 64, gradient_columns = 64;  // channels of a block of weight gradients

// Measured against oneDNN with cold caches: with fewer tiles the transform of the weights costs more than the products save, and
// if tiles extend far beyond the outputs too few products are saved. (Relative to oneDNN's time, 64 tiles take 0.8 to 1.04 with
// AVX-512 and up to 1.25 with AVX2, 125 take 0.6 to 0.7; weight gradients of 64 tiles 0.66 to 1.02; flat tiles 0.9 to 1.2 for 64
// to 100 and 0.7 to 0.8 for 256; planes of 7 x 7 take 0.9, of 3 x 3 1.6.)
constexpr std::int64_t least_worth = 96, least_worth_flat = 192, least_worth_weight = 48;
constexpr double most_products = 0.6;  // relative to a direct convolution

// With a distance of a power of two, positions would share few sets of the first cache.
constexpr std::int64_t padded(std::int64_t elements) { return elements + lanes; }

float* memory(ThreadBuffer& buffer, std::int64_t elements) {
  return static_cast<float*>(buffer.reserve(static_cast<std::size_t>(elements) * sizeof(float)));
}

// One buffer per computing thread.
ThreadBuffer& thread_memory() {
  thread_local ThreadBuffer buffer;
  return buffer;
}

// The tiles of a problem, numbered along the width first. Independent planes count as samples.
struct Tiles {
  explicit Tiles(const ConvProblem& given) : p(given), flat(given.kernel[0] == 1) {
    if (flat) p.batch *= p.in[0], p.in[0] = p.out[0] = 1;
    count = {flat ? 1 : ceil_div(p.out[0], 2), ceil_div(p.out[1], 2), ceil_div(p.out[2], 2)};
    all = p.batch * volume(count);
  }
  std::int64_t positions() const { return flat ? 16 : 64; }
  std::int64_t taps() const { return volume(p.kernel); }
  const Transforms& transforms() const { return flat ? kernels().flat : kernels().volume; }
  // The cells around tile i that it reads from x, or that it writes to y; `at` is the offset of the first cell.
  Cells inputs(std::int64_t i, std::int64_t& at) const { return cells(i, p.in, p.in_channels, p.pad_low, at); }
  Cells outputs(std::int64_t i, std::int64_t& at) const { return cells(i, p.out, p.out_channels, {0, 0, 0}, at); }

  ConvProblem p;
  bool flat;
  Extent3 count{};
  std::int64_t all = 0;

 private:
  Cells cells(std::int64_t i, const Extent3& extent, std::int64_t channels, const Extent3& before, std::int64_t& at) const {
    const Extent3 tile{i / count[2] / count[1] % count[0], i / count[2] % count[1], i % count[2]};
    Cells result{.step = {extent[1] * extent[2] * channels, extent[2] * channels, channels}};
    at = i / volume(count) * volume(extent) * channels;
    for (std::size_t a = 0; a < 3; ++a) {
      const std::int64_t first = 2 * tile[a] - before[a];
      at += first * result.step[a];
      result.begin[a] = -first, result.end[a] = extent[a] - first;
    }
    return result;
  }
};

// Taps of `lanes` x `lanes` channels in the order of the transforms, [taps, lanes, lanes]; the last dimension has the channels
// that are adjacent in the right matrix of a product.
using Taps = std::array<float, std::size_t{27} * lanes * lanes>;

// Reads from w [K, taps, C], starting at channels c and k. For the data gradient K and C are exchanged and the taps reversed.
void gather(const ConvProblem& p, bool data, const float* w, std::int64_t in, std::int64_t out, Taps& to) {
  const auto at = [](std::int64_t t, std::int64_t i, std::int64_t o) {
    return static_cast<std::size_t>((t * lanes + i) * lanes + o);
  };
  const std::int64_t taps = volume(p.kernel);
  for (std::int64_t a = 0; a < lanes; ++a)
    for (std::int64_t t = 0; t < taps; ++t) {
      const float* from = w + (((data ? in : out) + a) * taps + (data ? taps - 1 - t : t)) * p.in_channels + (data ? out : in);
      for (std::int64_t b = 0; b < lanes; ++b) to[data ? at(t, a, b) : at(t, b, a)] = from[b];
    }
}

// The problem whose forward pass gives the data gradient of p.
ConvProblem turned(const ConvProblem& p) {
  ConvProblem result = p;
  std::swap(result.in, result.out);
  std::swap(result.in_channels, result.out_channels);
  for (std::size_t a = 0; a < 3; ++a) result.pad_low[a] = p.kernel[a] - 1 - p.pad_low[a];
  return result;
}

void convolve(const ConvProblem& given, bool data, const float* x, const float* w, float* y, const Epilogue& e) {
  const Tiles tiles(data ? turned(given) : given);
  const std::int64_t in = tiles.p.in_channels, out = tiles.p.out_channels, positions = tiles.positions();
  const Transforms& transforms = tiles.transforms();
  const std::int64_t threads = omp_get_max_threads();
  const std::int64_t at_once =
      std::min(out, std::clamp(weight_floats / positions / in / lanes * lanes, least_outputs, most_outputs));
  const std::int64_t block = std::clamp<std::int64_t>(
      std::min(block_floats / positions / (in + at_once), ceil_div(tiles.all, threads)), least_tiles, most_rows / positions);
  const std::int64_t blocks = ceil_div(tiles.all, block);
  thread_local ThreadBuffer weights;
  float* const u = memory(weights, positions * in * at_once);
  ParallelErrors errors;
  for (std::int64_t first = 0; first < out; first += at_once) {
    const std::int64_t count = std::min(at_once, out - first), squares = count / lanes;
#pragma omp parallel
    {
      float* v = nullptr;
      const std::int64_t v_stride = padded(block * in), m_stride = padded(block * count);
      errors.guard([&] { v = memory(thread_memory(), positions * (v_stride + m_stride)); });
      float* const m = v + positions * v_stride;
      Taps part;
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < in / lanes * squares; ++i) {
        const std::int64_t c = i / squares * lanes, k = i % squares * lanes;
        gather(given, data, w, c, first + k, part);
        for (std::int64_t row = 0; row < lanes; ++row)
          transforms.weight(lanes, part.data() + row * lanes, lanes * lanes, u + (c + row) * count + k, in * count);
      }
#pragma omp for schedule(dynamic)
      for (std::int64_t b = 0; b < blocks; ++b)
        errors.guard([&] {
          const std::int64_t begin = b * block, n = std::min(block, tiles.all - begin);
          for (std::int64_t i = 0, at = 0; i < n; ++i) {
            const Cells cells = tiles.inputs(begin + i, at);
            transforms.input(cells, in, x + at, v + i * in, v_stride);
          }
          for (std::int64_t at = 0; at < positions; ++at)
            kernels().product(n, count, in, v + at * v_stride, in, 1, u + at * in * count, count, false, m + at * m_stride,
                              count);
          const float* bias = e.bias == nullptr ? nullptr : static_cast<const float*>(e.bias) + first;
          for (std::int64_t i = 0, at = 0; i < n; ++i) {
            const Cells cells = tiles.outputs(begin + i, at);
            transforms.output(cells, count, m + i * count, m_stride, bias, e.fused.as<float>(), y + at + first);
          }
        });
    }
  }
  errors.rethrow();
}

}  // namespace

bool possible(const ConvProblem& p) {
  const Extent3 one{1, 1, 1};
  const bool planes = p.kernel[0] == 1 && p.pad_low[0] == 0 && p.in[0] == p.out[0];
  return (p.kernel[0] == 3 || planes) && p.kernel[1] == 3 && p.kernel[2] == 3 && p.stride == one && p.dilation == one &&
         p.groups == 1 && p.in_channels > 0 && p.out_channels > 0 && p.in_channels % lanes == 0 && p.out_channels % lanes == 0 &&
         p.batch > 0 && volume(p.in) > 0 && volume(p.out) > 0;
}

bool suits(Pass pass, const ConvProblem& p) {
  if (!possible(p) || !fast()) return false;
  const Tiles tiles(pass == Pass::data ? turned(p) : p);
  const auto products = static_cast<double>(tiles.positions() * tiles.all);
  const auto direct = static_cast<double>(tiles.taps() * tiles.p.batch * volume(tiles.p.out));
  const auto least = pass == Pass::weight ? least_worth_weight : tiles.flat ? least_worth_flat : least_worth;
  return tiles.all >= least && products <= most_products * direct;
}

void conv_forward(const ConvProblem& p, const float* x, const float* w, float* y, const Epilogue& e) {
  convolve(p, false, x, w, y, e);
}

void conv_data(const ConvProblem& p, const float* gy, const float* w, float* gx, const Epilogue& e) {
  convolve(p, true, gy, w, gx, e);
}

void conv_weight(const ConvProblem& p, const float* x, const float* gy, float* gw) {
  const Tiles tiles(p);
  const Transforms& transforms = tiles.transforms();
  const std::int64_t positions = tiles.positions(), taps = tiles.taps();
  const std::int64_t threads = omp_get_max_threads();
  const std::int64_t rows = std::min(gradient_rows, p.in_channels), columns = std::min(gradient_columns, p.out_channels);
  const std::int64_t row_blocks = ceil_div(p.in_channels, rows), pairs = row_blocks * ceil_div(p.out_channels, columns);
  const std::int64_t block =
      std::clamp<std::int64_t>(block_floats / positions / (rows + columns), least_tiles, most_rows / positions);
  // With fewer blocks of weights than threads, several threads share each block and process different tiles.
  const std::int64_t shares = std::min(pairs >= threads ? 1 : ceil_div(threads, pairs), ceil_div(tiles.all, block));
  const std::int64_t size = positions * rows * columns;
  thread_local ThreadBuffer shared;
  float* const partial = shares > 1 ? memory(shared, pairs * shares * size) : nullptr;
  ParallelErrors errors;
#pragma omp parallel
  {
    float* v = nullptr;
    const std::int64_t v_stride = padded(block * rows), g_stride = padded(block * columns);
    errors.guard([&] { v = memory(thread_memory(), positions * (v_stride + g_stride) + size); });
    float *const g = v + positions * v_stride, *const sums = g + positions * g_stride;
    Taps part;
    const auto place = [&](std::int64_t pair, const float* s) {
      const std::int64_t c0 = pair % row_blocks * rows, k0 = pair / row_blocks * columns;
      const std::int64_t cs = std::min(rows, p.in_channels - c0), ks = std::min(columns, p.out_channels - k0);
      for (std::int64_t c = 0; c < cs; c += lanes)
        for (std::int64_t k = 0; k < ks; k += lanes) {
          for (std::int64_t row = 0; row < lanes; ++row)
            transforms.weight_gradient(lanes, s + (c + row) * columns + k, rows * columns, part.data() + row * lanes,
                                       lanes * lanes);
          for (std::int64_t o = 0; o < lanes; ++o)
            for (std::int64_t t = 0; t < taps; ++t)
              for (std::int64_t i = 0; i < lanes; ++i)
                gw[((k0 + k + o) * taps + t) * p.in_channels + c0 + c + i] =
                    part[static_cast<std::size_t>((t * lanes + i) * lanes + o)];
        }
    };
#pragma omp for schedule(dynamic)
    for (std::int64_t item = 0; item < pairs * shares; ++item)
      errors.guard([&] {
        const std::int64_t pair = item / shares, share = item % shares;
        const std::int64_t c0 = pair % row_blocks * rows, k0 = pair / row_blocks * columns;
        const std::int64_t cs = std::min(rows, p.in_channels - c0), ks = std::min(columns, p.out_channels - k0);
        const std::int64_t begin = tiles.all * share / shares, end = tiles.all * (share + 1) / shares;
        float* const s = shares == 1 ? sums : partial + item * size;
        for (std::int64_t first = begin; first < end; first += block) {
          const std::int64_t n = std::min(block, end - first);
          for (std::int64_t i = 0, at = 0; i < n; ++i) {
            const Cells cells = tiles.inputs(first + i, at);
            transforms.input(cells, cs, x + at + c0, v + i * rows, v_stride);
          }
          for (std::int64_t i = 0, at = 0; i < n; ++i) {
            const Cells cells = tiles.outputs(first + i, at);
            transforms.gradient(cells, ks, gy + at + k0, g + i * columns, g_stride);
          }
          for (std::int64_t at = 0; at < positions; ++at)
            kernels().product(cs, ks, n, v + at * v_stride, 1, rows, g + at * g_stride, columns, first > begin,
                              s + at * rows * columns, columns);
        }
        if (shares == 1) place(pair, s);
      });
    if (shares > 1) {
#pragma omp for schedule(static)
      for (std::int64_t pair = 0; pair < pairs; ++pair)
        errors.guard([&] {
          float* const first = partial + pair * shares * size;
          for (std::int64_t share = 1; share < shares; ++share)
            for (std::int64_t i = 0; i < size; ++i) first[i] += first[share * size + i];
          place(pair, first);
        });
    }
  }
  errors.rethrow();
}

}  // namespace mpigrad::cpu::winograd
