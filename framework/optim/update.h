#ifndef MPIGRAD_FRAMEWORK_OPTIM_UPDATE_H
#define MPIGRAD_FRAMEWORK_OPTIM_UPDATE_H
// The update of one element, defined once for CPU and CUDA: the parts of optimizer rules (framework/optim/rules/) and the loop
// over elements.

#include <cmath>
#include <cstdint>

#include "framework/base/host_device.h"

// For functions inside loops, which vectorise only if these functions are inlined.
#define MPIGRAD_UPDATE_INLINE MPIGRAD_HOST_DEVICE __attribute__((always_inline)) inline

namespace mpigrad {

// Consecutive elements of one parameter, its gradient, its state and its numbers.
struct UpdateSegment {
  std::int64_t count = 0;
  void* value = nullptr;
  const void* gradient = nullptr;
  void* state[2] = {};
  double rate = 0, decay = 0;  // learning rate and weight decay
  bool ratio = false;          // whether optimizers with a trust ratio scale its step
};

// The factor of the gradients in one step.
struct GradientScale {
  double factor = 1;
  const double* on_gpu = nullptr;  // address of the factor on the GPU instead, so that the host need not know it
};

// A step's numbers for one parameter, in double.
struct StepNumbers {
  double rate = 0;  // the learning rate, times the trust ratio of the parameter
  double decay = 0, scale = 1;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t of both moments
};

// A rule and a step's numbers for all parameters.
template <class Rule>
struct RuleOfStep {
  Rule rule{};
  GradientScale scale{};
  double correction1 = 1, correction2 = 1;  // see StepNumbers
  const double* squares = nullptr;          // squared norms of each segment (weights, step), on the GPU; null: no trust ratios
  template <class T>
  MPIGRAD_HOST_DEVICE typename Rule::template Numbers<T> numbers(double rate, double decay) const {
    return rule.template numbers<T>(StepNumbers{rate, decay, scale.factor, correction1, correction2});
  }
};

// Rules whose rate is scaled by `rule.ratio(|weights|, |step|, weight_decay)`, both norms above 0.
template <class Rule>
concept HasTrustRatio = requires(const Rule& rule, double x) {
  rule.ratio(x, x, x);
};

// The ratio; 1 if one of the norms is 0 or the segment has no trust ratio.
template <class Rule>
MPIGRAD_HOST_DEVICE double trust_ratio(const Rule& rule, bool has_ratio, double squared_weights, double squared_step,
                                       double weight_decay) {
  if (!has_ratio || squared_weights == 0 || squared_step == 0) return 1;
  return rule.ratio(std::sqrt(squared_weights), std::sqrt(squared_step), weight_decay);
}

// Sums of squares of weights, and of the step that they are compared with.
struct SquaredNorms {
  double weights = 0, step = 0;
};

// Updates the elements begin, begin + stride, ... below `end` with the state arrays that are not null.
template <class T, class Numbers>
MPIGRAD_UPDATE_INLINE void update_elements(T* __restrict p, const T* __restrict g, T* __restrict first, T* __restrict second,
                                           std::int64_t begin, std::int64_t end, std::int64_t stride, const Numbers& a) {
  if constexpr (requires(T & x) { a.update(x, x, x, x); }) {
    if (second) {
      for (std::int64_t i = begin; i < end; i += stride) a.update(p[i], g[i], first[i], second[i]);
      return;
    }
  }
  if constexpr (requires(T & x) { a.update(x, x, x); }) {
    if (first) {
      for (std::int64_t i = begin; i < end; i += stride) a.update(p[i], g[i], first[i]);
      return;
    }
  }
  if constexpr (requires(T & x) { a.update(x, x); })
    for (std::int64_t i = begin; i < end; i += stride) a.update(p[i], g[i]);
}

// The element of the step that enters its norm, after prepare() of the element.
template <class T, class Numbers>
MPIGRAD_UPDATE_INLINE T measured_step(const T* p, const T* g, const T* first, const T* second, std::int64_t i, const Numbers& a) {
  if constexpr (requires(T x) { a.measured(x, x, x, x); }) return a.measured(p[i], g[i], first[i], second[i]);
  else return a.measured(g[i]);
}

// The moving average of weights, p <- p + rest (g - p); rest = 1 copies. Not an optimizer, but uses the same pass.
struct AverageRule {
  double rest = 1;
  template <class T>
  struct Numbers {
    T rest;
    MPIGRAD_UPDATE_INLINE void update(T& average, T p) const {
      if (rest == T(1)) average = p;
      else average += rest * (p - average);
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers&) const {
    return {static_cast<T>(rest)};
  }
};

}  // namespace mpigrad

#endif
