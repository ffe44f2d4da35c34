#include "ops/conv/conv_reduced.h"

#include <cstring>
#include <utility>

#include "framework/tensor/half.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::cpu {
namespace {

// The taps from the first to the last that meets an input; none if all taps meet only padding.
Range met_taps(const ConvProblem& p, std::size_t a) {
  Range met;
  for (std::int64_t t = 0; t < p.kernel[a]; ++t) {
    const Range outputs = inside(t * p.dilation[a] - p.pad_low[a], p.stride[a], p.out[a], p.in[a]);
    if (outputs.begin == outputs.end) continue;
    if (met.begin == met.end) met.begin = t;
    met.end = t + 1;
  }
  return met;
}

bool flat(const ConvProblem& p, std::size_t a) { return p.in[a] == 1 && p.out[a] == 1 && p.kernel[a] == 1; }

// True if every output reads only the input at its own position.
bool pointwise(const ConvProblem& p, std::size_t a) {
  return p.kernel[a] == 1 && p.stride[a] == 1 && p.pad_low[a] == 0 && p.in[a] == p.out[a];
}

void swap_axes(ConvProblem& p, std::size_t a, std::size_t b) {
  for (Extent3* e : {&p.in, &p.out, &p.kernel, &p.stride, &p.dilation, &p.pad_low}) std::swap((*e)[a], (*e)[b]);
}

// An axis of one element may be moved without moving anything in memory. It costs least in front, as kernels of libraries work
// along the width.
void flat_axes_first(ConvProblem& p) {
  for (const std::size_t a : {1, 2, 1})
    if (flat(p, a) && !flat(p, a - 1)) swap_axes(p, a - 1, a);
}

// Below this many elements a width leaves most of a kernel's registers empty.
constexpr std::int64_t thin = 8;

// Merges a thin pointwise width with the axis before it; the merged axis has the dilation multiplied by the width.
void merge_thin_width(ConvProblem& p) {
  while (pointwise(p, 2) && p.in[2] > 1 && p.in[2] < thin && p.stride[1] == 1 && !flat(p, 1)) {
    const std::int64_t width = p.in[2];
    for (Extent3* e : {&p.in, &p.out, &p.dilation, &p.pad_low}) (*e)[2] = (*e)[1] * width, (*e)[1] = 1;
    p.kernel[2] = p.kernel[1], p.kernel[1] = 1, p.pad_low[1] = 0;
    if (p.kernel[2] == 1) p.dilation[2] = 1;
    flat_axes_first(p);
  }
}

template <class T>
T* buffer(std::int64_t elements) {
  thread_local ThreadBuffer memory;
  return static_cast<T*>(memory.reserve(static_cast<std::size_t>(elements) * sizeof(T)));
}

}  // namespace

ReducedConv::ReducedConv(const ConvProblem& asked)
    : problem_(asked), rows_(asked.out_channels), run_(asked.in_channels / asked.groups), taps_(asked.kernel) {
  ConvProblem& p = problem_;
  for (std::size_t a = 0; a < 3; ++a) {
    kept_[a] = met_taps(p, a);
    // Nothing to compute: the callers know what to write then.
    if (kept_[a].begin == kept_[a].end) {
      problem_ = asked, drops_taps_ = false;
      return;
    }
    p.kernel[a] = kept_[a].end - kept_[a].begin, p.pad_low[a] -= kept_[a].begin * p.dilation[a];
    drops_taps_ |= p.kernel[a] != asked.kernel[a];
    if (p.kernel[a] == 1) p.dilation[a] = 1;
    if (p.out[a] == 1) p.stride[a] = 1;
  }
  flat_axes_first(p);
  merge_thin_width(p);
}

namespace {

// Calls f(pointer into the part, pointer into the whole, elements) for each of the part's rows of taps along the last axis.
template <class F>
void for_rows(std::int64_t rows, const Extent3& taps, const std::array<Range, 3>& kept, std::int64_t run, const F& f) {
  const std::int64_t length = (kept[2].end - kept[2].begin) * run;
  std::int64_t part = 0;
  for (std::int64_t k = 0; k < rows; ++k)
    for (std::int64_t d = kept[0].begin; d < kept[0].end; ++d)
      for (std::int64_t h = kept[1].begin; h < kept[1].end; ++h, part += length)
        f(part, (((k * taps[0] + d) * taps[1] + h) * taps[2] + kept[2].begin) * run, static_cast<std::size_t>(length));
}

}  // namespace

template <class T>
const T* ReducedConv::kept(const T* w) const {
  if (!drops_taps_) return w;
  T* const part = buffer<T>(rows_ * volume(problem_.kernel) * run_);
  for_rows(rows_, taps_, kept_, run_,
           [&](std::int64_t to, std::int64_t from, std::size_t n) { std::memcpy(part + to, w + from, n * sizeof(T)); });
  return part;
}

template <class T>
T* ReducedConv::room(T* gw) const {
  return drops_taps_ ? buffer<T>(rows_ * volume(problem_.kernel) * run_) : gw;
}

template <class T>
void ReducedConv::place(const T* part, T* gw) const {
  if (part == gw) return;
  std::fill_n(gw, rows_ * volume(taps_) * run_, T(0.0F));
  for_rows(rows_, taps_, kept_, run_,
           [&](std::int64_t from, std::int64_t to, std::size_t n) { std::memcpy(gw + to, part + from, n * sizeof(T)); });
}

template const float* ReducedConv::kept(const float*) const;
template const BFloat16* ReducedConv::kept(const BFloat16*) const;
template float* ReducedConv::room(float*) const;
template BFloat16* ReducedConv::room(BFloat16*) const;
template void ReducedConv::place(const float*, float*) const;
template void ReducedConv::place(const BFloat16*, BFloat16*) const;

}  // namespace mpigrad::cpu
