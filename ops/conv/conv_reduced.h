#pragma once
// Removes two unneeded parts of a convolution: taps of the kernel that meet only padding, for every output, and axes too thin for
// kernels that work along the width. Thin slabs, such as halos, have many of both.

#include <array>
#include <cstdint>

#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu {

// The same convolution of the same x and y, which stay as they are in memory. If taps are dropped, its weights are a part of the
// given weights.
class ReducedConv {
 public:
  explicit ReducedConv(const ConvProblem& asked);

  const ConvProblem& problem() const { return problem_; }
  bool drops_taps() const { return drops_taps_; }

  // w without the dropped taps, in this thread's memory until its next call; w itself if no tap was dropped.
  template <class T>
  const T* kept(const T* w) const;
  // Memory for the gradient of these weights, under the same conditions: gw itself, or this thread's memory.
  template <class T>
  T* room(T* gw) const;
  // gw <- the computed part, and zeros where taps were dropped.
  template <class T>
  void place(const T* part, T* gw) const;

 private:
  ConvProblem problem_;
  bool drops_taps_ = false;
  // For the given weights: out channels, taps and elements per tap of the last axis; and the taps that are kept.
  std::int64_t rows_, run_;
  Extent3 taps_;
  std::array<Range, 3> kept_{};
};

}  // namespace mpigrad::cpu
