#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_SGD_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_SGD_H
// Stochastic gradient descent.

#include "framework/optim/rules/rule.h"

namespace mpigrad {

struct SGDAttributes {
  double learning_rate = 1e-2, momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  bool replicated = false;  // see OptimizerOptions
};

// g <- g + weight_decay p;  v <- momentum v + g;  p <- p - rate v, with Nesterov's rule p - rate (g + momentum v)
struct SGDRule {
  using Attributes = SGDAttributes;
  static constexpr const char* name = "sgd";
  static constexpr bool takes_momentum = true;
  double momentum = 0;
  bool nesterov = false;

  // Errors: momentum outside [0, 1), Nesterov's rule without it.
  static SGDRule of(const Attributes& a) {
    require_fraction(name, "momentum", a.momentum);
    require_rule(!a.nesterov || a.momentum > 0, "[sgd] Nesterov's rule needs momentum");
    return {a.momentum, a.nesterov};
  }
  std::vector<std::string> states() const {
    return momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
  }

  template <class T>
  struct Numbers {
    T rate, decay, scale, momentum;
    bool nesterov;
    MPIGRAD_UPDATE_INLINE void update(T& p, T g) const { p -= rate * (scale * g + decay * p); }
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& v) const {
      const T of_gradient = nesterov ? T(1) : T(0), of_velocity = nesterov ? momentum : T(1);
      const T d = scale * g + decay * p;
      const T w = momentum * v + d;
      v = w;
      p -= rate * (of_gradient * d + of_velocity * w);
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {static_cast<T>(s.rate), static_cast<T>(s.decay), static_cast<T>(s.scale), static_cast<T>(momentum), nesterov};
  }
};
using SGD = RuleOptimizer<SGDRule>;

}  // namespace mpigrad

#endif
