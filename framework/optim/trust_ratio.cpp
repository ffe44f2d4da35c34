#include "framework/optim/trust_ratio.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/base/target_clones.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer_state.h"
#include "framework/optim/update.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {
namespace {

struct Sums {
  double weights = 0, step = 0;
};

// Four partial sums each, so that a fixed order does not mean a chain of additions.
template <class T, class Step>
MPIGRAD_BODY Sums sums_of(const T* __restrict p, std::int64_t n, const Step& step) {
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
MPIGRAD_BODY Sums lars_norms_body(const T* p, const T* g, std::int64_t n, T scale) {
  return sums_of(p, n, [&](std::int64_t i) { return scale * g[i]; });
}
template <class T>
MPIGRAD_BODY void lars_body(T* __restrict p, const T* __restrict g, T* __restrict v, std::int64_t n, LarsNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) lars_update(p[i], g[i], v[i], a);
}
MPIGRAD_CLONES Sums lars_norms(const float* p, const float* g, std::int64_t n, float s) { return lars_norms_body(p, g, n, s); }
MPIGRAD_CLONES Sums lars_norms(const double* p, const double* g, std::int64_t n, double s) { return lars_norms_body(p, g, n, s); }
MPIGRAD_CLONES void lars(float* p, const float* g, float* v, std::int64_t n, LarsNumbers<float> a) { lars_body(p, g, v, n, a); }
MPIGRAD_CLONES void lars(double* p, const double* g, double* v, std::int64_t n, LarsNumbers<double> a) {
  lars_body(p, g, v, n, a);
}

template <class T>
MPIGRAD_BODY Sums lamb_norms_body(const T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, std::int64_t n,
                                  LambNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) lamb_moments(g[i], m[i], v[i], a);
  return sums_of(p, n, [&](std::int64_t i) { return lamb_step(p[i], m[i], v[i], a); });
}
template <class T>
MPIGRAD_BODY void lamb_body(T* __restrict p, const T* __restrict m, const T* __restrict v, std::int64_t n, LambNumbers<T> a) {
  for (std::int64_t i = 0; i < n; ++i) p[i] -= a.rate * lamb_step(p[i], m[i], v[i], a);
}
MPIGRAD_CLONES Sums lamb_norms(const float* p, const float* g, float* m, float* v, std::int64_t n, LambNumbers<float> a) {
  return lamb_norms_body(p, g, m, v, n, a);
}
MPIGRAD_CLONES Sums lamb_norms(const double* p, const double* g, double* m, double* v, std::int64_t n, LambNumbers<double> a) {
  return lamb_norms_body(p, g, m, v, n, a);
}
MPIGRAD_CLONES void lamb(float* p, const float* m, const float* v, std::int64_t n, LambNumbers<float> a) {
  lamb_body(p, m, v, n, a);
}
MPIGRAD_CLONES void lamb(double* p, const double* m, const double* v, std::int64_t n, LambNumbers<double> a) {
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
  detail::sum_blocks(parameters().tensors(), squares);
  if (reduce_norms_) reduce_norms_(parameters(), squares);
  for (std::size_t s = 0; s < pieces.size(); ++s)
    if (parameters()[s].decay)
      pieces[s].trust = trust_of({.weights = squares[2 * s], .step = squares[2 * s + 1]}, pieces[s].weight_decay);
}

void TrustRatioOptimizer::update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const {
  constexpr auto width = static_cast<std::int64_t>(sizeof(double));
  std::vector<Tensor> squares;  // on the GPU
  for (const auto& group : groups) {
    const auto n = 2 * static_cast<std::int64_t>(group.segments.size());
    squares.push_back(Tensor({Shape{n}, DType::float64}, DeviceKind::cuda));
    measure_on_gpu(group, scale, as<double>(squares.back().raw()));
  }
  const auto values = parameters().tensors();
  if (reduce_norms_ || std::any_of(values.begin(), values.end(), detail::in_blocks)) {
    std::vector<double> all(2 * parameters().size(), 0.0), part;
    const auto for_parts = [&](const auto& f) {
      for (std::size_t k = 0; k < groups.size(); ++k) {
        part.resize(2 * groups[k].places.size());
        f(groups[k].places, squares[k].raw());
      }
    };
    for_parts([&](const std::vector<std::size_t>& places, const std::byte* from) {
      cuda::copy_to_host(part.data(), from, static_cast<std::int64_t>(part.size()) * width);
      for (std::size_t i = 0; i < part.size(); ++i) all[2 * places[i / 2] + i % 2] = part[i];
    });
    detail::sum_blocks(values, all);
    if (reduce_norms_) reduce_norms_(parameters(), all);
    for_parts([&](const std::vector<std::size_t>& places, std::byte* to) {
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = all[2 * places[i / 2] + i % 2];
      cuda::copy_to_device(to, part.data(), static_cast<std::int64_t>(part.size()) * width);
    });
  }
  for (std::size_t k = 0; k < groups.size(); ++k) apply_on_gpu(groups[k], scale, as<double>(squares[k].raw()));
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

LarsRule LARS::rule(const GradientScale& scale) const {
  return {.scale = scale.factor,
          .scale_on_gpu = scale.on_gpu,
          .momentum = attributes_.momentum,
          .trust = attributes_.trust,
          .epsilon = attributes_.epsilon};
}

double LARS::trust_of(const Squares& squares, double weight_decay) const {
  return trust_ratio(rule({}), true, squares.weights, squares.step, weight_decay);
}

void LARS::update(const Piece& at) const {
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rule({.factor = at.scale}).numbers<T>(at.learning_rate * at.trust, at.weight_decay);
    lars(as<T>(at.value), as<T>(at.gradient), as<T>(at.state[0]), at.count, a);
  });
}

void LARS::measure_on_gpu(const GpuGroup& group, const GradientScale& scale, double* squares) const {
  cuda::measure(group.dtype, group.segments, rule(scale), squares);
}
void LARS::apply_on_gpu(const GpuGroup& group, const GradientScale& scale, const double* squares) const {
  cuda::update(group.dtype, group.segments, rule(scale), squares);
}

LAMB::LAMB(Parameters& parameters, const LambAttributes& a)
    : TrustRatioOptimizer(parameters, a.learning_rate, a.weight_decay, a.groups, {"first_moment", "second_moment"},
                          a.reduce_norms),
      attributes_(a) {
  require(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1, "[lamb] beta1 and beta2 are in [0, 1), got {} and {}",
          a.beta1, a.beta2);
  require(a.epsilon >= 0, "[lamb] epsilon is not negative, got {}", a.epsilon);
}

std::array<double, 2> LAMB::corrections() const {
  const auto t = static_cast<double>(steps());
  return {1 - std::pow(attributes_.beta1, t), 1 - std::pow(attributes_.beta2, t)};
}

LambRule LAMB::rule(const GradientScale& scale) const {
  const auto of_moments = corrections();
  return {.scale = scale.factor,
          .scale_on_gpu = scale.on_gpu,
          .beta1 = attributes_.beta1,
          .beta2 = attributes_.beta2,
          .epsilon = attributes_.epsilon,
          .correction1 = of_moments[0],
          .correction2 = of_moments[1]};
}

LAMB::Squares LAMB::measure(const Piece& at) const {
  Sums sums;
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    sums = lamb_norms(as<T>(at.value), as<T>(at.gradient), as<T>(at.state[0]), as<T>(at.state[1]), at.count,
                      rule({.factor = at.scale}).numbers<T>(at.learning_rate, at.weight_decay));
  });
  return {sums.weights, sums.step};
}

double LAMB::trust_of(const Squares& squares, double weight_decay) const {
  return trust_ratio(rule({}), true, squares.weights, squares.step, weight_decay);
}

void LAMB::update(const Piece& at) const {
  visit_floating(at.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rule({.factor = at.scale}).numbers<T>(at.learning_rate * at.trust, at.weight_decay);
    lamb(as<T>(at.value), as<T>(at.state[0]), as<T>(at.state[1]), at.count, a);
  });
}

void LAMB::measure_on_gpu(const GpuGroup& group, const GradientScale& scale, double* squares) const {
  cuda::measure(group.dtype, group.segments, rule(scale), squares);
}
void LAMB::apply_on_gpu(const GpuGroup& group, const GradientScale& scale, const double* squares) const {
  cuda::update(group.dtype, group.segments, rule(scale), squares);
}

}  // namespace mpigrad
