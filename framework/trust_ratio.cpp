#include "framework/trust_ratio.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/target_clones.h"

namespace mpigrad {
namespace {

struct Sums {
  double weights = 0, step = 0;
};

// Four partial sums each, so that a fixed order does not mean a chain of additions.
template <class T, class Step>
MPIGRAD_UPDATE_BODY Sums sums_of(const T* __restrict p, std::int64_t n, const Step& step) {
  double w[4] = {}, s[4] = {};
  std::int64_t i = 0;
  const auto add = [&](std::int64_t at, std::int64_t lane) {
    const double x = static_cast<double>(p[at]), y = static_cast<double>(step(at));
    w[lane] += x * x;
    s[lane] += y * y;
  };
  for (; i + 4 <= n; i += 4)
    for (std::int64_t j = 0; j < 4; ++j) add(i + j, j);
  for (; i < n; ++i) add(i, 0);
  return {(w[0] + w[1]) + (w[2] + w[3]), (s[0] + s[1]) + (s[2] + s[3])};
}

template <class T>
struct LarsNumbers {
  T rate, decay, scale, momentum;
};
template <class T>
MPIGRAD_UPDATE_BODY Sums lars_norms_body(const T* p, const T* g, std::int64_t n, T scale) {
  return sums_of(p, n, [&](std::int64_t i) { return scale * g[i]; });
}
template <class T>
MPIGRAD_UPDATE_BODY void lars_body(T* __restrict p, const T* __restrict g, T* __restrict v, std::int64_t n, LarsNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T w = a.momentum * v[i] + a.rate * (a.scale * g[i] + a.decay * p[i]);
    v[i] = w;
    p[i] -= w;
  }
}
MPIGRAD_UPDATE Sums lars_norms(const float* p, const float* g, std::int64_t n, float s) { return lars_norms_body(p, g, n, s); }
MPIGRAD_UPDATE Sums lars_norms(const double* p, const double* g, std::int64_t n, double s) { return lars_norms_body(p, g, n, s); }
MPIGRAD_UPDATE void lars(float* p, const float* g, float* v, std::int64_t n, LarsNumbers<float> a) { lars_body(p, g, v, n, a); }
MPIGRAD_UPDATE void lars(double* p, const double* g, double* v, std::int64_t n, LarsNumbers<double> a) {
  lars_body(p, g, v, n, a);
}

template <class T>
struct LambNumbers {
  T rate, decay, scale, beta1, beta2, epsilon;
  T first, root;  // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
};
template <class T>
MPIGRAD_UPDATE_BODY T lamb_step(const T* p, const T* m, const T* v, std::int64_t i, const LambNumbers<T>& a) {
  return a.first * m[i] / (std::sqrt(v[i]) * a.root + a.epsilon) + a.decay * p[i];
}
template <class T>
MPIGRAD_UPDATE_BODY Sums lamb_norms_body(const T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
                                         std::int64_t n, LambNumbers<T> a) {
  const T rest1 = 1 - a.beta1, rest2 = 1 - a.beta2;
  for (std::int64_t i = 0; i < n; ++i) {
    const T d = a.scale * g[i];
    m[i] = a.beta1 * m[i] + rest1 * d;
    v[i] = a.beta2 * v[i] + rest2 * d * d;
  }
  return sums_of(p, n, [&](std::int64_t i) { return lamb_step(p, m, v, i, a); });
}
template <class T>
MPIGRAD_UPDATE_BODY void lamb_body(T* __restrict p, const T* __restrict m, const T* __restrict v, std::int64_t n,
                                   LambNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) p[i] -= a.rate * lamb_step(p, m, v, i, a);
}
MPIGRAD_UPDATE Sums lamb_norms(const float* p, const float* g, float* m, float* v, std::int64_t n, LambNumbers<float> a) {
  return lamb_norms_body(p, g, m, v, n, a);
}
MPIGRAD_UPDATE Sums lamb_norms(const double* p, const double* g, double* m, double* v, std::int64_t n, LambNumbers<double> a) {
  return lamb_norms_body(p, g, m, v, n, a);
}
MPIGRAD_UPDATE void lamb(float* p, const float* m, const float* v, std::int64_t n, LambNumbers<float> a) {
  lamb_body(p, m, v, n, a);
}
MPIGRAD_UPDATE void lamb(double* p, const double* m, const double* v, std::int64_t n, LambNumbers<double> a) {
  lamb_body(p, m, v, n, a);
}

template <class T>
T* as(std::byte* pointer) {
  return reinterpret_cast<T*>(pointer);
}
template <class T>
const T* as(const std::byte* pointer) {
  return reinterpret_cast<const T*>(pointer);
}

}  // namespace

TrustRatioOptimizer::TrustRatioOptimizer(Parameters& parameters, double learning_rate, double weight_decay,
                                         const std::vector<ParameterGroup>& groups, std::vector<std::string> slots,
                                         NormReduction reduce_norms)
    : Optimizer(parameters, learning_rate, weight_decay, groups, std::move(slots)), reduce_norms_(std::move(reduce_norms)) {}

// In blocks whose borders do not depend on the number of threads, so that neither do the sums.
void TrustRatioOptimizer::prepare(std::span<Piece> pieces) {
  constexpr std::int64_t block = 8192;
  struct Part {
    std::size_t parameter;
    std::int64_t begin, count;
    Squares squares{};
  };
  std::vector<Part> parts;
  for (std::size_t s = 0; s < pieces.size(); ++s)
    for (std::int64_t begin = 0; begin < pieces[s].count; begin += block)
      parts.push_back({s, begin, std::min(block, pieces[s].count - begin)});
  const auto count = static_cast<std::int64_t>(parts.size());
#pragma omp parallel for schedule(static) if (count > 4)
  for (std::int64_t k = 0; k < count; ++k) {
    auto& part = parts[static_cast<std::size_t>(k)];
    part.squares = measure(part_of(pieces[part.parameter], part.begin, part.count));
  }
  std::vector<double> squares(2 * pieces.size(), 0.0);
  for (const auto& part : parts) {
    squares[2 * part.parameter] += part.squares.weights;
    squares[2 * part.parameter + 1] += part.squares.step;
  }
  if (reduce_norms_) reduce_norms_(parameters(), squares);
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    if (!parameters()[s].decay) continue;
    const double weights = std::sqrt(squares[2 * s]), step = std::sqrt(squares[2 * s + 1]);
    if (weights != 0 && step != 0) pieces[s].trust = trust_of(weights, step, pieces[s].weight_decay);
  }
}

LARS::LARS(Parameters& parameters, const LarsAttributes& a)
    : TrustRatioOptimizer(parameters, a.learning_rate, a.weight_decay, a.groups, {"momentum"}, a.reduce_norms), attributes_(a) {
  require(a.momentum >= 0 && a.momentum < 1, "[lars] momentum is in [0, 1), got {}", a.momentum);
  require(a.trust > 0 && a.epsilon >= 0, "[lars] trust is positive and epsilon not negative, got {} and {}", a.trust, a.epsilon);
}

LARS::Squares LARS::measure(const Piece& at) const {
  Sums sums;
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    sums = lars_norms(as<T>(at.value), as<T>(at.gradient), at.count, static_cast<T>(at.scale));
  });
  return {sums.weights, sums.step};
}

double LARS::trust_of(double weight_norm, double step_norm, double weight_decay) const {
  return attributes_.trust * weight_norm / (step_norm + weight_decay * weight_norm + attributes_.epsilon);
}

void LARS::update(const Piece& at) const {
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LarsNumbers<T> a{static_cast<T>(at.learning_rate * at.trust), static_cast<T>(at.weight_decay), static_cast<T>(at.scale),
                           static_cast<T>(attributes_.momentum)};
    lars(as<T>(at.value), as<T>(at.gradient), as<T>(at.state[0]), at.count, a);
  });
}

LAMB::LAMB(Parameters& parameters, const LambAttributes& a)
    : TrustRatioOptimizer(parameters, a.learning_rate, a.weight_decay, a.groups, {"first_moment", "second_moment"},
                          a.reduce_norms),
      attributes_(a) {
  require(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1, "[lamb] beta1 and beta2 are in [0, 1), got {} and {}",
          a.beta1, a.beta2);
  require(a.epsilon >= 0, "[lamb] epsilon is not negative, got {}", a.epsilon);
}

template <class T>
auto LAMB::numbers(const Piece& at) const {
  const auto t = static_cast<double>(steps());
  return LambNumbers<T>{.rate = static_cast<T>(at.learning_rate * at.trust),
                        .decay = static_cast<T>(at.weight_decay),
                        .scale = static_cast<T>(at.scale),
                        .beta1 = static_cast<T>(attributes_.beta1),
                        .beta2 = static_cast<T>(attributes_.beta2),
                        .epsilon = static_cast<T>(attributes_.epsilon),
                        .first = static_cast<T>(1 / (1 - std::pow(attributes_.beta1, t))),
                        .root = static_cast<T>(1 / std::sqrt(1 - std::pow(attributes_.beta2, t)))};
}

LAMB::Squares LAMB::measure(const Piece& at) const {
  Sums sums;
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    sums = lamb_norms(as<T>(at.value), as<T>(at.gradient), as<T>(at.state[0]), as<T>(at.state[1]), at.count, numbers<T>(at));
  });
  return {sums.weights, sums.step};
}

double LAMB::trust_of(double weight_norm, double step_norm, double) const { return weight_norm / step_norm; }

void LAMB::update(const Piece& at) const {
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    lamb(as<T>(at.value), as<T>(at.state[0]), as<T>(at.state[1]), at.count, numbers<T>(at));
  });
}

}  // namespace mpigrad
