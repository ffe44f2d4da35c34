#pragma once
// What a convolution can do without: taps of the kernel that meet padding alone, whatever the output, and axes too thin for
// kernels that work along the width. Thin slabs, as halos are, have many of both.

#include <array>
#include <cstdint>

#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu {

// The same convolution of the same x and y, which stay as they lie in memory. Where taps are dropped, the weights are a part of
// those that were given.
class ReducedConv {
 public:
  explicit ReducedConv(const ConvProblem& asked);

  const ConvProblem& problem() const { return problem_; }
  bool drops_taps() const { return drops_taps_; }

  // w without the taps that were dropped, in this thread's memory until its next call; w itself where none was.
  template <class T>
  const T* kept(const T* w) const;
  // Room for such a part that is to be computed, under the same conditions: gw itself, or this thread's memory.
  template <class T>
  T* room(T* gw) const;
  // gw <- the part that was computed, and zeros where taps were dropped.
  template <class T>
  void place(const T* part, T* gw) const;

 private:
  ConvProblem problem_;
  bool drops_taps_ = false;
  // Of the weights that were given: out channels, taps and elements for each of the last axis's taps; and the taps that are kept.
  std::int64_t rows_, run_;
  Extent3 taps_;
  std::array<Range, 3> kept_{};
};

}  // namespace mpigrad::cpu
