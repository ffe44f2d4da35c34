#include "ops/backends/patches/patches.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "framework/tensor/half_rows.h"
#include "ops/backends/blas/blas.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/parts.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::cpu::patches {
namespace {

template <class From, class To>
void copy(const From* from, To* to, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
  else mpigrad::detail::convert(from, to, n);
}

float* floats(ThreadBuffer& buffer, std::int64_t n) {
  return static_cast<float*>(buffer.reserve(static_cast<std::size_t>(n) * sizeof(float)));
}

// A row of outputs, [W', K], belongs to one row of inputs, [W', kw C], for each of the kernel's rows. The taps of a kernel's row
// are one block of columns of the weights [K, kd kh (kw C)].
struct Rows {
  explicit Rows(const ConvProblem& problem)
      : p(problem), count(p.batch * p.out[0] * p.out[1]), width(p.out[2]), inputs(p.kernel[2] * p.in_channels),
        outputs(p.out_channels), kernel_rows(p.kernel[0] * p.kernel[1]), at_once(ceil_div(cells_at_once, width)) {}

  // The row of x under the kernel's row `tap` at a row of outputs.
  std::int64_t input(std::int64_t row, std::int64_t tap) const {
    const std::int64_t h = row % p.out[1], d = row / p.out[1] % p.out[0], n = row / p.out[1] / p.out[0];
    return (n * p.in[0] + d * p.kernel[0] + tap / p.kernel[1]) * p.in[1] + h * p.kernel[1] + tap % p.kernel[1];
  }
  std::int64_t leading() const { return kernel_rows * inputs; }

  // Rows of outputs as float [rows W', K], and of the inputs under a kernel's row as float [rows W', kw C]: in place where they
  // are, otherwise in `room`.
  template <class E>
  const float* of_outputs(const E* y, std::int64_t first, std::int64_t rows, ThreadBuffer& room) const {
    if constexpr (std::is_same_v<E, float>) {
      return y + first * width * outputs;
    } else {
      float* to = floats(room, rows * width * outputs);
      copy(y + first * width * outputs, to, rows * width * outputs);
      return to;
    }
  }
  template <class E>
  const float* of_inputs(const E* x, std::int64_t first, std::int64_t rows, std::int64_t tap, ThreadBuffer& room) const {
    const std::int64_t length = width * inputs;
    if constexpr (std::is_same_v<E, float>)
      if (kernel_rows == 1) return x + first * length;
    float* to = floats(room, rows * length);
    for (std::int64_t r = 0; r < rows; ++r) copy(x + input(first + r, tap) * length, to + r * length, length);
    return to;
  }

  // Enough rows of a product's left operand to use the weights well; with the rows of a product they stay in the second cache.
  static constexpr std::int64_t cells_at_once = 256;

  ConvProblem p;
  std::int64_t count, width, inputs, outputs, kernel_rows, at_once;
};

// Calls f(first row of outputs, rows) for all rows.
template <class F>
void for_rows(const Rows& rows, const F& f) {
  const std::int64_t chunks = ceil_div(rows.count, rows.at_once);
  ParallelErrors errors;
  cpu::for_parts(chunks, chunks > 1, [&](std::int64_t begin, std::int64_t end) {
    errors.guard([&] {
      for (std::int64_t i = begin; i < end; ++i) f(i * rows.at_once, std::min(rows.at_once, rows.count - i * rows.at_once));
    });
  });
  errors.rethrow();
}

// The weights, or the bias, as float.
template <class W>
const float* widened(const W* w, std::int64_t n, ThreadBuffer& room) {
  if constexpr (std::is_same_v<W, float>) {
    return w;
  } else {
    if (w == nullptr) return nullptr;
    float* to = floats(room, n);
    copy(w, to, n);
    return to;
  }
}

}  // namespace

template <class E>
bool suits(Pass pass, const ConvProblem& p) {
  // With fewer outputs the weights are what costs time, and other kernels share those among threads.
  constexpr std::int64_t least_outputs = 64;
  if (p.groups != 1 || p.batch * volume(p.out) < least_outputs || p.in_channels * p.out_channels == 0) return false;
  for (std::size_t a = 0; a < 3; ++a)
    if ((p.kernel[a] != p.stride[a] && p.out[a] > 1) || p.pad_low[a] != 0 || p.in[a] != p.out[a] * p.kernel[a] ||
        (p.dilation[a] != 1 && p.kernel[a] != 1))
      return false;
  return std::is_same_v<E, BFloat16> || pass == Pass::weight || volume(p.kernel) > 1;
}

template <class E, class W>
void conv_forward(const ConvProblem& p, const E* x, const W* w, E* y, const Epilogue& e) {
  const Rows rows(p);
  thread_local ThreadBuffer of_weights;
  thread_local ThreadBuffer of_bias;
  const float* weights = widened(w, p.out_channels * rows.leading(), of_weights);
  const Epilogue epilogue{.bias = widened(static_cast<const E*>(e.bias), p.out_channels, of_bias), .fused = e.fused};
  for_rows(rows, [&](std::int64_t first, std::int64_t n) {
    thread_local ThreadBuffer of_inputs;
    thread_local ThreadBuffer of_outputs;
    const std::int64_t cells = n * rows.width;
    E* const to = y + first * rows.width * rows.outputs;
    float* sums = nullptr;
    if constexpr (std::is_same_v<E, float>) sums = to;
    else sums = floats(of_outputs, cells * rows.outputs);
    for (std::int64_t tap = 0; tap < rows.kernel_rows; ++tap)
      gemm(false, true, cells, rows.outputs, rows.inputs, rows.of_inputs(x, first, n, tap, of_inputs), rows.inputs,
           weights + tap * rows.inputs, rows.leading(), tap > 0, sums, rows.outputs);
    apply_epilogue(epilogue, cells, 0, rows.outputs, sums, rows.outputs);
    if constexpr (!std::is_same_v<E, float>) copy(sums, to, cells * rows.outputs);
  });
}

template <class E, class W>
void conv_data(const ConvProblem& p, const E* gy, const W* w, E* gx, const Epilogue& e) {
  const Rows rows(p);
  thread_local ThreadBuffer of_weights;
  thread_local ThreadBuffer of_bias;
  const float* weights = widened(w, p.out_channels * rows.leading(), of_weights);
  const Epilogue epilogue{.bias = widened(static_cast<const E*>(e.bias), p.in_channels, of_bias), .fused = e.fused};
  for_rows(rows, [&](std::int64_t first, std::int64_t n) {
    thread_local ThreadBuffer of_inputs;
    thread_local ThreadBuffer of_outputs;
    const std::int64_t cells = n * rows.width, length = rows.width * rows.inputs;
    const float* g = rows.of_outputs(gy, first, n, of_outputs);
    float* products = floats(of_inputs, n * length);
    for (std::int64_t tap = 0; tap < rows.kernel_rows; ++tap) {
      gemm(false, false, cells, rows.inputs, rows.outputs, g, rows.outputs, weights + tap * rows.inputs, rows.leading(), false,
           products, rows.inputs);
      apply_epilogue(epilogue, cells * p.kernel[2], 0, p.in_channels, products, p.in_channels);
      for (std::int64_t r = 0; r < n; ++r) copy(products + r * length, gx + rows.input(first + r, tap) * length, length);
    }
  });
}

// Parts of the rows are summed in float and added up in double, in order: the result does not depend on the number of threads.
template <class E, class W>
void conv_weight(const ConvProblem& p, const E* x, const E* gy, W* gw) {
  const Rows rows(p);
  const std::int64_t size = p.out_channels * rows.leading(), chunks = ceil_div(rows.count, rows.at_once);
  constexpr std::int64_t most_parts = 16, most_sums = 1 << 20;
  const std::int64_t parts = std::clamp<std::int64_t>(std::min(chunks, most_sums / size), 1, most_parts);
  thread_local ThreadBuffer of_sums;
  float* sums = nullptr;
  bool in_place = false;
  if constexpr (std::is_same_v<W, float>) in_place = parts == 1, sums = in_place ? gw : nullptr;
  if (!in_place) sums = floats(of_sums, parts * size);
  ParallelErrors errors;
  cpu::for_parts(parts, parts > 1, [&](std::int64_t begin, std::int64_t end) {
    errors.guard([&] {
      thread_local ThreadBuffer of_inputs;
      thread_local ThreadBuffer of_outputs;
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t low = chunks * part / parts, high = chunks * (part + 1) / parts;
        for (std::int64_t i = low; i < high; ++i) {
          const std::int64_t first = i * rows.at_once, n = std::min(rows.at_once, rows.count - first);
          const float* g = rows.of_outputs(gy, first, n, of_outputs);
          for (std::int64_t tap = 0; tap < rows.kernel_rows; ++tap)
            gemm(true, false, rows.outputs, rows.inputs, n * rows.width, g, rows.outputs,
                 rows.of_inputs(x, first, n, tap, of_inputs), rows.inputs, i > low, sums + part * size + tap * rows.inputs,
                 rows.leading());
        }
      }
    });
  });
  errors.rethrow();
  if (in_place) return;
  cpu::for_parts(size, parts * size > 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (std::int64_t part = 0; part < parts; ++part) sum += static_cast<double>(sums[part * size + i]);
      gw[i] = static_cast<W>(static_cast<float>(sum));
    }
  });
}

#define MPIGRAD_MAKE(E, W)                                                                 \
  template void conv_forward(const ConvProblem&, const E*, const W*, E*, const Epilogue&); \
  template void conv_data(const ConvProblem&, const E*, const W*, E*, const Epilogue&);    \
  template void conv_weight(const ConvProblem&, const E*, const E*, W*);
MPIGRAD_MAKE(float, float)
MPIGRAD_MAKE(BFloat16, BFloat16)
MPIGRAD_MAKE(BFloat16, float)
#undef MPIGRAD_MAKE
template bool suits<float>(Pass, const ConvProblem&);
template bool suits<BFloat16>(Pass, const ConvProblem&);

}  // namespace mpigrad::cpu::patches
