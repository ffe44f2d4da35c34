#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_LAMB_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_LAMB_H
// LAMB, for large batches: Adam's moments and a trust ratio as in LARS.

#include "framework/optim/rules/adam.h"

namespace mpigrad {

struct LambAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 1e-2;
  std::vector<ParameterGroup> groups{};
  NormReduction reduce_norms{};
  bool replicated = false;  // see OptimizerOptions
};

// You et al. 2020:
//   m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
//   s = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p,  t = 1, 2, ...
//   p <- p - rate (|p| / |s|) s, where the ratio is 1 if one of the norms is 0 and for biases and norms
struct LambRule : AdamMoments {
  using Attributes = LambAttributes;
  static constexpr const char* name = "lamb";
  static LambRule of(const Attributes& a) { return {AdamMoments::of(name, a)}; }
  MPIGRAD_HOST_DEVICE double ratio(double weights, double step, double) const { return weights / step; }

  template <class T>
  struct Numbers {
    AdamMoments::Numbers<T> moments;
    T rate, decay, scale;
    MPIGRAD_UPDATE_INLINE void prepare(T g, T& m, T& v) const { moments.add(scale * g, m, v); }
    MPIGRAD_UPDATE_INLINE T measured(T p, T, T m, T v) const { return moments.step(m, v) + decay * p; }
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& m, T& v) const { p -= rate * measured(p, g, m, v); }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {numbers_of<T>(s, 1), static_cast<T>(s.rate), static_cast<T>(s.decay), static_cast<T>(s.scale)};
  }
};
using LAMB = RuleOptimizer<LambRule>;

}  // namespace mpigrad

#endif
