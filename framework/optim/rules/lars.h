#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_LARS_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_LARS_H
// LARS, for large batches: the step of each parameter is scaled by the ratio of the parameter's norm to the step's norm. Two
// passes over the arenas instead of one, since the norms come first. Biases and parameters of norms (`decay` false) are not
// scaled.
//
//   LARS lars(parameters, {.learning_rate = 0.3 * batch / 256});
//   const schedule::WarmUp rate{.steps = 1000, .then = schedule::Cosine{.rate = 4.8, .steps = 100000}};

#include "framework/optim/rules/rule.h"

namespace mpigrad {

struct LarsAttributes {
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 1e-6;
  double trust = 1e-3;  // eta of the paper
  double epsilon = 0;   // added to the denominator of the ratio
  std::vector<ParameterGroup> groups{};
  NormReduction reduce_norms{};
  bool replicated = false;  // see OptimizerOptions
};

// You, Gitman and Ginsburg 2017:
//   ratio = trust |p| / (|g| + weight_decay |p| + epsilon), 1 where one of the norms |p|, |g| is 0 and for biases and norms
//   v <- momentum v + rate ratio (g + weight_decay p);  p <- p - v
struct LarsRule {
  using Attributes = LarsAttributes;
  static constexpr const char* name = "lars";
  static constexpr bool takes_momentum = true;
  double momentum = 0, trust = 1e-3, epsilon = 0;

  // Errors: momentum outside [0, 1), trust that is not positive, a negative epsilon.
  static LarsRule of(const Attributes& a) {
    require_fraction(name, "momentum", a.momentum);
    require_rule(a.trust > 0, "[lars] trust is positive");
    require_not_negative(name, "epsilon", a.epsilon);
    return {a.momentum, a.trust, a.epsilon};
  }
  std::vector<std::string> states() const { return {"momentum"}; }
  MPIGRAD_HOST_DEVICE double ratio(double weights, double step, double weight_decay) const {
    return trust * weights / (step + weight_decay * weights + epsilon);
  }

  template <class T>
  struct Numbers {
    T rate, decay, scale, momentum;
    MPIGRAD_UPDATE_INLINE T measured(T g) const { return scale * g; }
    MPIGRAD_UPDATE_INLINE void update(T& p, T g, T& v) const {
      const T w = momentum * v + rate * (scale * g + decay * p);
      v = w;
      p -= w;
    }
  };
  template <class T>
  MPIGRAD_HOST_DEVICE Numbers<T> numbers(const StepNumbers& s) const {
    return {static_cast<T>(s.rate), static_cast<T>(s.decay), static_cast<T>(s.scale), static_cast<T>(momentum)};
  }
};
using LARS = RuleOptimizer<LarsRule>;

}  // namespace mpigrad

#endif
