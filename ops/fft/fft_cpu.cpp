#include <algorithm>
#include <array>
#include <cstring>

#include "ops/backends/fftw/fftw.h"
#include "ops/fft/fft.h"
#include "ops/fft/lines.h"
#include "ops/kernel/parts.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::ops {
namespace {

template <class T>
struct Pair {
  T re, im;
};

constexpr std::int64_t group_bytes = 256;              // of neighbouring lines, which are packed together
constexpr std::int64_t parallel_lines_from = 1 << 13;  // numbers; below, starting threads costs more than it saves

// Elements of a packed line with a pitch that is a multiple of 64 bytes and not a power of two, so that lines do not share the
// sets of a cache.
template <class E>
std::int64_t pitch_of(std::int64_t count) {
  const auto unit = static_cast<std::int64_t>(64 / sizeof(E));
  return ((count + unit - 1) / unit | 1) * unit;
}

// Lines [first, first + count) of an array [outer, n, inner]; a line's number is o * inner + i.
struct LineGroup {
  std::int64_t n, inner, first, count;
  // True if the lines are neighbours in one row.
  bool together() const { return inner > 1 && first / inner == (first + count - 1) / inner; }
  std::int64_t offset(std::int64_t line) const { return (first + line) / inner * n * inner + (first + line) % inner; }
};

template <class E>
void pack_lines(const LineGroup& group, const E* x, E* packed, std::int64_t pitch) {
  if (group.together()) {
    const E* from = x + group.offset(0);
    for (std::int64_t j = 0; j < group.n; ++j, from += group.inner)
      for (std::int64_t b = 0; b < group.count; ++b) packed[b * pitch + j] = from[b];
    return;
  }
  for (std::int64_t b = 0; b < group.count; ++b) {
    const E* from = x + group.offset(b);
    E* to = packed + b * pitch;
    if (group.inner == 1) std::memcpy(to, from, static_cast<std::size_t>(group.n) * sizeof(E));
    else
      for (std::int64_t j = 0; j < group.n; ++j) to[j] = from[j * group.inner];
  }
}

template <class E>
void unpack_lines(const LineGroup& group, const E* packed, std::int64_t pitch, E* y) {
  if (group.together()) {
    E* to = y + group.offset(0);
    for (std::int64_t j = 0; j < group.n; ++j, to += group.inner)
      for (std::int64_t b = 0; b < group.count; ++b) to[b] = packed[b * pitch + j];
    return;
  }
  for (std::int64_t b = 0; b < group.count; ++b) {
    const E* from = packed + b * pitch;
    E* to = y + group.offset(b);
    if (group.inner == 1) std::memcpy(to, from, static_cast<std::size_t>(group.n) * sizeof(E));
    else
      for (std::int64_t j = 0; j < group.n; ++j) to[j * group.inner] = from[j];
  }
}

template <class T>
void scale_line(T* numbers, std::int64_t count, double factor) {
  if (factor == 1) return;
  const auto by = static_cast<T>(factor);
  for (std::int64_t i = 0; i < count; ++i) numbers[i] *= by;
}
// The numbers 0 < k < n / 2 of a halved line.
template <class T>
void scale_between(Pair<T>* line, std::int64_t n, double factor) {
  const std::int64_t end = (n + 1) / 2;
  if (end > 1) scale_line(&line[1].re, 2 * (end - 1), factor);
}

template <class T, class From, class To>
void transform(const LinePass& pass, const From* x, To* y) {
  const auto& plan = cpu::line_transform<T>(pass.kind, pass.n);
  const std::int64_t from_n = pass.kind == Lines::half_to_real ? pass.half() : pass.n;
  const std::int64_t to_n = pass.kind == Lines::real_to_half ? pass.half() : pass.n;
  const std::int64_t from_pitch = pitch_of<From>(from_n), to_pitch = pitch_of<To>(to_n);
  constexpr auto most = static_cast<std::int64_t>(group_bytes / std::max(sizeof(From), sizeof(To)));
  // Groups of neighbours do not cross the end of a row of lines.
  const bool rows = pass.inner >= most;
  const std::int64_t lines = pass.outer * pass.inner, per_row = rows ? (pass.inner + most - 1) / most : 0;
  const std::int64_t groups = rows ? pass.outer * per_row : (lines + most - 1) / most;
  cpu::for_parts(groups, lines * pass.n >= parallel_lines_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      static thread_local cpu::ThreadBuffer buffer;
      auto* in = static_cast<From*>(
          buffer.reserve(static_cast<std::size_t>(most) * (static_cast<std::size_t>(from_pitch) * sizeof(From) +
                                                           static_cast<std::size_t>(to_pitch) * sizeof(To))));
      auto* out = reinterpret_cast<To*>(in + most * from_pitch);
      const std::int64_t row = rows ? g / per_row : 0;
      const std::int64_t first = rows ? row * pass.inner + (g - row * per_row) * most : g * most;
      const std::int64_t count = std::min(most, (rows ? (row + 1) * pass.inner : lines) - first);
      pack_lines(LineGroup{from_n, pass.inner, first, count}, x, in, from_pitch);
      for (std::int64_t b = 0; b < count; ++b) {
        From* line = in + b * from_pitch;
        To* result = out + b * to_pitch;
        if constexpr (std::is_same_v<To, T>) {  // FFTW ignores these imaginary parts; this does not rely on it
          line[0].im = 0;
          if (pass.n % 2 == 0) line[pass.n / 2].im = 0;
          scale_between(line, pass.n, pass.between);
        }
        plan.run(reinterpret_cast<T*>(line), reinterpret_cast<T*>(result));
        if constexpr (std::is_same_v<From, T>) scale_between(result, pass.n, pass.between);
        scale_line(reinterpret_cast<T*>(result), to_n * static_cast<std::int64_t>(sizeof(To) / sizeof(T)), pass.scale);
      }
      unpack_lines(LineGroup{to_n, pass.inner, first, count}, out, to_pitch, y);
    }
  });
}

void run_passes(const FourierPasses& passes, const Tensor& in, Tensor& out) {
  for_each_pass(passes, in, out, [](const LinePass& pass, const Tensor& x, Tensor& y) {
    visit_floating(real_type(x.dtype()), [&](auto zero) {
      using T = decltype(zero);
      transform_lines<T>(pass, reinterpret_cast<const T*>(x.raw()), reinterpret_cast<T*>(y.raw()));
    });
  });
}

}  // namespace

template <class T>
void transform_lines(const LinePass& pass, const T* x, T* y) {
  switch (pass.kind) {
    case Lines::forward:
    case Lines::backward: return transform<T>(pass, reinterpret_cast<const Pair<T>*>(x), reinterpret_cast<Pair<T>*>(y));
    case Lines::real_to_half: return transform<T>(pass, x, reinterpret_cast<Pair<T>*>(y));
    case Lines::half_to_real: return transform<T>(pass, reinterpret_cast<const Pair<T>*>(x), y);
  }
}
template void transform_lines(const LinePass&, const float*, float*);
template void transform_lines(const LinePass&, const double*, double*);

void FourierSum::run(Cpu, Inputs in, Outputs out) const { run_passes(passes_of(*this), in[0], out[0]); }
void RealFourierSum::run(Cpu, Inputs in, Outputs out) const { run_passes(passes_of(*this, in[0]), in[0], out[0]); }
void RealFourierInverse::run(Cpu, Inputs in, Outputs out) const { run_passes(passes_of(*this), in[0], out[0]); }

}  // namespace mpigrad::ops
