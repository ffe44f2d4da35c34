#ifndef MPIGRAD_FRAMEWORK_OPTIM_UPDATE_H
#define MPIGRAD_FRAMEWORK_OPTIM_UPDATE_H
// The formulas of optimizers for one element, one definition for CPU and CUDA. See framework/optim/optimizer.h for what they
// compute.

#include <cmath>
#include <cstdint>

#include "framework/base/host_device.h"

// Loops around them vectorise only if they vanish into the loops.
#define MPIGRAD_UPDATE_INLINE MPIGRAD_HOST_DEVICE __attribute__((always_inline)) inline

namespace mpigrad {

// Consecutive elements of one parameter on a GPU, and its numbers.
struct UpdateSegment {
  std::int64_t count = 0;
  void* value = nullptr;
  const void* gradient = nullptr;
  void* state[2] = {};
  double rate = 0, decay = 0;  // learning rate and weight decay
  bool ratio = false;          // whether its step is scaled by a trust ratio, by optimizers that have one
};

// Of the gradients in one step.
struct GradientScale {
  double factor = 1;
  const double* on_gpu = nullptr;  // where a GPU finds it instead, so that the host need not know it
};

template <class T>
struct SGDNumbers {
  T rate, decay, scale, momentum;
  bool nesterov;
};
template <class T>
MPIGRAD_UPDATE_INLINE void sgd_update(T& p, T g, const SGDNumbers<T>& a) {
  p -= a.rate * (a.scale * g + a.decay * p);
}
template <class T>
MPIGRAD_UPDATE_INLINE void momentum_update(T& p, T g, T& v, const SGDNumbers<T>& a) {
  const T of_gradient = a.nesterov ? T(1) : T(0), of_velocity = a.nesterov ? a.momentum : T(1);
  const T d = a.scale * g + a.decay * p;
  const T w = a.momentum * v + d;
  v = w;
  p -= a.rate * (of_gradient * d + of_velocity * w);
}

template <class T>
struct AdamNumbers {
  T rate;   // over 1 - beta1^t
  T keep;   // factor of p: 1 - rate weight_decay if decoupled
  T decay;  // added to the gradient
  T scale, beta1, beta2, epsilon;
  T root;  // 1 / sqrt(1 - beta2^t)
};
template <class T>
MPIGRAD_UPDATE_INLINE void adam_update(T& p, T g, T& m, T& v, const AdamNumbers<T>& a) {
  const T d = a.scale * g + a.decay * p;
  const T first = a.beta1 * m + (1 - a.beta1) * d, second = a.beta2 * v + (1 - a.beta2) * d * d;
  m = first;
  v = second;
  p = a.keep * p - a.rate * first / (std::sqrt(second) * a.root + a.epsilon);
}

template <class T>
struct RmspropNumbers {
  T rate, decay, scale, smoothing, epsilon, momentum;
};
// What is subtracted, but for the rate and momentum.
template <class T>
MPIGRAD_UPDATE_INLINE T rmsprop_step(T p, T g, T& square, const RmspropNumbers<T>& a) {
  const T d = a.scale * g + a.decay * p;
  const T s = a.smoothing * square + (1 - a.smoothing) * d * d;
  square = s;
  return d / (std::sqrt(s) + a.epsilon);
}

template <class T>
MPIGRAD_UPDATE_INLINE void average_update(T& a, T p, T rest) {
  a += rest * (p - a);
}

// LARS and LAMB; `rate` is times the trust ratio of the whole parameter.
template <class T>
struct LarsNumbers {
  T rate, decay, scale, momentum;
};
template <class T>
MPIGRAD_UPDATE_INLINE void lars_update(T& p, T g, T& v, const LarsNumbers<T>& a) {
  const T w = a.momentum * v + a.rate * (a.scale * g + a.decay * p);
  v = w;
  p -= w;
}

template <class T>
struct LambNumbers {
  T rate, decay, scale, beta1, beta2, epsilon;
  T first, root;  // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
};
template <class T>
MPIGRAD_UPDATE_INLINE void lamb_moments(T g, T& m, T& v, const LambNumbers<T>& a) {
  const T d = a.scale * g;
  m = a.beta1 * m + (1 - a.beta1) * d;
  v = a.beta2 * v + (1 - a.beta2) * d * d;
}
template <class T>
MPIGRAD_UPDATE_INLINE T lamb_step(T p, T m, T v, const LambNumbers<T>& a) {
  return a.first * m / (std::sqrt(v) * a.root + a.epsilon) + a.decay * p;
}

// ---- a step's numbers for all parameters; `numbers` makes those of one of them

struct SGDRule {
  double scale = 1;
  const double* scale_on_gpu = nullptr;  // what `scale` becomes there, if any
  double momentum = 0;
  bool nesterov = false;
  template <class T>
  MPIGRAD_HOST_DEVICE SGDNumbers<T> numbers(double rate, double weight_decay) const {
    return {static_cast<T>(rate), static_cast<T>(weight_decay), static_cast<T>(scale), static_cast<T>(momentum), nesterov};
  }
};

struct AdamRule {
  double scale = 1;
  const double* scale_on_gpu = nullptr;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  bool decoupled = false;
  template <class T>
  MPIGRAD_HOST_DEVICE AdamNumbers<T> numbers(double rate, double weight_decay) const {
    return {static_cast<T>(rate / correction1),
            static_cast<T>(decoupled ? 1 - rate * weight_decay : 1),
            static_cast<T>(decoupled ? 0 : weight_decay),
            static_cast<T>(scale),
            static_cast<T>(beta1),
            static_cast<T>(beta2),
            static_cast<T>(epsilon),
            static_cast<T>(1 / std::sqrt(correction2))};
  }
};

struct RmspropRule {
  double scale = 1;
  const double* scale_on_gpu = nullptr;
  double smoothing = 0.99, epsilon = 1e-8, momentum = 0;
  template <class T>
  MPIGRAD_HOST_DEVICE RmspropNumbers<T> numbers(double rate, double weight_decay) const {
    return {static_cast<T>(rate),      static_cast<T>(weight_decay), static_cast<T>(scale),
            static_cast<T>(smoothing), static_cast<T>(epsilon),      static_cast<T>(momentum)};
  }
};

struct AverageRule {
  double rest = 1;
};

// `ratio` is the trust ratio of a parameter with the norms |weights| and |step|, both above 0.
struct LarsRule {
  double scale = 1;
  const double* scale_on_gpu = nullptr;
  double momentum = 0, trust = 1e-3, epsilon = 0;
  MPIGRAD_HOST_DEVICE double ratio(double weights, double step, double weight_decay) const {
    return trust * weights / (step + weight_decay * weights + epsilon);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE LarsNumbers<T> numbers(double rate, double weight_decay) const {
    return {static_cast<T>(rate), static_cast<T>(weight_decay), static_cast<T>(scale), static_cast<T>(momentum)};
  }
};

struct LambRule {
  double scale = 1;
  const double* scale_on_gpu = nullptr;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  MPIGRAD_HOST_DEVICE double ratio(double weights, double step, double) const { return weights / step; }
  template <class T>
  MPIGRAD_HOST_DEVICE LambNumbers<T> numbers(double rate, double weight_decay) const {
    return {static_cast<T>(rate),
            static_cast<T>(weight_decay),
            static_cast<T>(scale),
            static_cast<T>(beta1),
            static_cast<T>(beta2),
            static_cast<T>(epsilon),
            static_cast<T>(1 / correction1),
            static_cast<T>(1 / std::sqrt(correction2))};
  }
};

// 1 where one of the norms is 0, and where the segment has none.
template <class Rule>
MPIGRAD_HOST_DEVICE double trust_ratio(const Rule& rule, bool has_ratio, double squared_weights, double squared_step,
                                       double weight_decay) {
  if (!has_ratio || squared_weights == 0 || squared_step == 0) return 1;
  return rule.ratio(std::sqrt(squared_weights), std::sqrt(squared_step), weight_decay);
}

}  // namespace mpigrad

#endif
