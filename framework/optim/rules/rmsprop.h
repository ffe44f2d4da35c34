#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_RMSPROP_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_RMSPROP_H
// RMSprop (Tieleman and Hinton 2012, lecture 6.5), with PyTorch's definitions.

#include "framework/optim/rules/rule.h"

namespace mpigrad {

struct RmspropAttributes {
  double learning_rate = 1e-2;
  double smoothing = 0.99;  // decay of the mean square; alpha in PyTorch
  double epsilon = 1e-8, momentum = 0, weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  bool replicated = false;  // see OptimizerOptions
};

// g <- g + weight_decay p;  s <- smoothing s + (1 - smoothing) g^2;  d = g / (sqrt(s) + epsilon);
// with momentum v <- momentum v + d and d = v;  p <- p - rate d
struct RmspropRule {
  using Attributes = RmspropAttributes;
  static constexpr const char* name = "rmsprop";
  double smoothing = 0.99, epsilon = 1e-8, momentum = 0;

  // Errors: smoothing or momentum outside [0, 1), a negative epsilon.
  static RmspropRule of(const Attributes& a) {
    require_fraction(name, "smoothing", a.smoothing);
    require_fraction(name, "momentum", a.momentum);
    require_not_negative(name, "epsilon", a.epsilon);
    return {a.smoothing, a.epsilon, a.momentum};
  }
  std::vector<std::string> states() const {
    return momentum == 0 ? std::vector<std::string>{"mean_square"} : std::vector<std::string>{"mean_square", "momentum"};
  }

  template <class T>
  struct Numbers {
    T rate, decay, scale, smoothing, epsilon, momentum;
    // The step without rate and momentum.
    MPIGRAD_UPDATE_INLINE T step(T p, T g, T& square) const {
      const T d = scale * g + decay * p;
      const T s = smoothing * square + (1 - smoothing) * d * d;
      square = s;
      return d / (std::sqrt(s) + epsilon);
    }
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& square) const { p -= rate * step(p, g, square); }
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& square, T& v) const {
      v = momentum * v + step(p, g, square);
      p -= rate * v;
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {static_cast<T>(s.rate),    static_cast<T>(s.decay), static_cast<T>(s.scale),
            static_cast<T>(smoothing), static_cast<T>(epsilon), static_cast<T>(momentum)};
  }
};
using RMSprop = RuleOptimizer<RmspropRule>;

}  // namespace mpigrad

#endif
