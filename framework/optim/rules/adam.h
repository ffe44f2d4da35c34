#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_ADAM_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_ADAM_H
// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019).

#include <array>

#include "framework/optim/rules/rule.h"

namespace mpigrad {

// Moving averages of the gradient and of its square, shared by Adam, AdamW and LAMB.
struct AdamMoments {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

  // Errors: beta1 or beta2 outside [0, 1), a negative epsilon.
  template <class Attributes>
  static AdamMoments of(const char* name, const Attributes& a) {
    require_fraction(name, "beta1", a.beta1);
    require_fraction(name, "beta2", a.beta2);
    require_not_negative(name, "epsilon", a.epsilon);
    return {a.beta1, a.beta2, a.epsilon};
  }
  std::vector<std::string> states() const { return {"first_moment", "second_moment"}; }
  std::array<double, 2> corrections(double t) const { return {1 - std::pow(beta1, t), 1 - std::pow(beta2, t)}; }

  template <class T>
  struct Numbers {
    T beta1, beta2, epsilon;
    T rate;  // learning rate / (1 - beta1^t)
    T root;  // 1 / sqrt(1 - beta2^t)
    MPIGRAD_UPDATE_INLINE void add(T g, T& m, T& v) const {
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
    }
    MPIGRAD_UPDATE_INLINE T step(T m, T v) const { return rate * m / (std::sqrt(v) * root + epsilon); }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers_of(const StepNumbers& s, double rate) const {
    return {static_cast<T>(beta1), static_cast<T>(beta2), static_cast<T>(epsilon), static_cast<T>(rate / s.correction1),
            static_cast<T>(1 / std::sqrt(s.correction2))};
  }
};

struct AdamAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  bool replicated = false;  // see OptimizerOptions
};

// g <- g + weight_decay p;  m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
// p <- p - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon),  t = 1, 2, ...
struct AdamRule : AdamMoments {
  using Attributes = AdamAttributes;
  static constexpr const char* name = "adam";
  static AdamRule of(const Attributes& a) { return {AdamMoments::of(name, a)}; }

  template <class T>
  struct Numbers {
    AdamMoments::Numbers<T> moments;
    T decay, scale;
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& m, T& v) const {
      moments.add(scale * g + decay * p, m, v);
      p -= moments.step(m, v);
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {numbers_of<T>(s, s.rate), static_cast<T>(s.decay), static_cast<T>(s.scale)};
  }
};
using Adam = RuleOptimizer<AdamRule>;

struct AdamWAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-2;
  std::vector<ParameterGroup> groups{};
  bool replicated = false;  // see OptimizerOptions
};

// Adam with decoupled decay: p <- (1 - rate weight_decay) p, and g is not changed.
struct AdamWRule : AdamMoments {
  using Attributes = AdamWAttributes;
  static constexpr const char* name = "adamw";
  static AdamWRule of(const Attributes& a) { return {AdamMoments::of(name, a)}; }

  template <class T>
  struct Numbers {
    AdamMoments::Numbers<T> moments;
    T keep, scale;
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& m, T& v) const {
      moments.add(scale * g, m, v);
      p = keep * p - moments.step(m, v);
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {numbers_of<T>(s, s.rate), static_cast<T>(1 - s.rate * s.decay), static_cast<T>(s.scale)};
  }
};
using AdamW = RuleOptimizer<AdamWRule>;

}  // namespace mpigrad

#endif
