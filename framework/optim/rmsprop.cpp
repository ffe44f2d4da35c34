#include "framework/optim/rmsprop.h"

#include "framework/base/target_clones.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer_state.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {
namespace {

template <class T>
MPIGRAD_BODY void plain_body(T* __restrict p, const T* __restrict g, T* __restrict s, std::int64_t n, RmspropNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) p[i] -= a.rate * rmsprop_step(p[i], g[i], s[i], a);
}
template <class T>
MPIGRAD_BODY void momentum_body(T* __restrict p, const T* __restrict g, T* __restrict s, T* __restrict v, std::int64_t n,
                                RmspropNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) {
    v[i] = a.momentum * v[i] + rmsprop_step(p[i], g[i], s[i], a);
    p[i] -= a.rate * v[i];
  }
}
MPIGRAD_CLONES void plain(float* p, const float* g, float* s, std::int64_t n, RmspropNumbers<float> a) {
  plain_body(p, g, s, n, a);
}
MPIGRAD_CLONES void plain(double* p, const double* g, double* s, std::int64_t n, RmspropNumbers<double> a) {
  plain_body(p, g, s, n, a);
}
MPIGRAD_CLONES void with_momentum(float* p, const float* g, float* s, float* v, std::int64_t n, RmspropNumbers<float> a) {
  momentum_body(p, g, s, v, n, a);
}
MPIGRAD_CLONES void with_momentum(double* p, const double* g, double* s, double* v, std::int64_t n, RmspropNumbers<double> a) {
  momentum_body(p, g, s, v, n, a);
}

}  // namespace

RMSprop::RMSprop(Parameters& parameters, const RmspropAttributes& a)
    : Optimizer(parameters, a.learning_rate, a.weight_decay, a.groups,
                a.momentum != 0 ? std::vector<std::string>{"mean_square", "momentum"} : std::vector<std::string>{"mean_square"}),
      attributes_(a) {
  require(a.smoothing >= 0 && a.smoothing < 1, "[rmsprop] smoothing is in [0, 1), got {}", a.smoothing);
  require(a.momentum >= 0 && a.momentum < 1, "[rmsprop] momentum is in [0, 1), got {}", a.momentum);
  require(a.epsilon >= 0, "[rmsprop] epsilon is not negative, got {}", a.epsilon);
}

RmspropRule RMSprop::rule(const GradientScale& scale) const {
  return {.scale = scale.factor,
          .scale_on_gpu = scale.on_gpu,
          .smoothing = attributes_.smoothing,
          .epsilon = attributes_.epsilon,
          .momentum = attributes_.momentum};
}

void RMSprop::update(const Piece& at) const {
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rule({.factor = at.scale}).numbers<T>(at.learning_rate, at.weight_decay);
    T *p = detail::as<T>(at.value), *s = detail::as<T>(at.state[0]);
    if (attributes_.momentum == 0) plain(p, detail::as<T>(at.gradient), s, at.count, a);
    else with_momentum(p, detail::as<T>(at.gradient), s, detail::as<T>(at.state[1]), at.count, a);
  });
}

void RMSprop::update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const {
  for (const auto& group : groups) cuda::update(group.dtype, group.segments, rule(scale));
}

}  // namespace mpigrad
