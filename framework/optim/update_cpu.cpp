#include "framework/optim/update_cpu.h"

#include "framework/base/target_clones.h"
#include "framework/optim/rules/rules.h"

namespace mpigrad::detail {
namespace {

// Four partial sums each: a fixed order without one long chain of additions.
template <class T, class Step>
MPIGRAD_BODY SquaredNorms sums_of(const T* __restrict p, std::int64_t n, const Step& step) {
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

template <class T, class Numbers>
MPIGRAD_BODY SquaredNorms measure_body(const T* __restrict p, const T* __restrict g, T* __restrict first, T* __restrict second,
                                       std::int64_t n, Numbers a) {
  if constexpr (requires(T & x) { a.prepare(x, x, x); })
    for (std::int64_t i = 0; i < n; ++i) a.prepare(g[i], first[i], second[i]);
  return sums_of(p, n, [&](std::int64_t i) { return measured_step(p, g, first, second, i, a); });
}

// Plain functions around shared bodies, because templates cannot be cloned.
#define MPIGRAD_UPDATE_LOOP(T, Rule)                                                                           \
  MPIGRAD_CLONES void update_loop(T* p, const T* g, T* first, T* second, std::int64_t n, Rule::Numbers<T> a) { \
    update_elements(p, g, first, second, 0, n, 1, a);                                                          \
  }
#define MPIGRAD_MEASURE_LOOP(T, Rule)                                                                                         \
  MPIGRAD_CLONES SquaredNorms measure_loop(const T* p, const T* g, T* first, T* second, std::int64_t n, Rule::Numbers<T> a) { \
    return measure_body(p, g, first, second, n, a);                                                                           \
  }
#define MPIGRAD_UPDATE_LOOPS(Rule) MPIGRAD_UPDATE_LOOP(float, Rule) MPIGRAD_UPDATE_LOOP(double, Rule)
#define MPIGRAD_MEASURE_LOOPS(Rule) MPIGRAD_MEASURE_LOOP(float, Rule) MPIGRAD_MEASURE_LOOP(double, Rule)
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_UPDATE_LOOPS)
MPIGRAD_UPDATE_LOOPS(AverageRule)
MPIGRAD_TRUST_RATIO_RULES(MPIGRAD_MEASURE_LOOPS)

// f(p, g, first, second, numbers) with pointers to the elements' type.
template <class Rule, class F>
auto with_elements(DType dtype, const UpdateSegment& s, const RuleOfStep<Rule>& rule, const F& f) {
  return visit_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    return f(static_cast<T*>(s.value), static_cast<const T*>(s.gradient), static_cast<T*>(s.state[0]),
             static_cast<T*>(s.state[1]), rule.template numbers<T>(s.rate, s.decay));
  });
}

}  // namespace

template <class Rule>
void update(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule) {
  with_elements(dtype, segment, rule, [&](auto* p, const auto* g, auto* first, auto* second, const auto& a) {
    update_loop(p, g, first, second, segment.count, a);
  });
}

template <class Rule>
SquaredNorms measure(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule) {
  return with_elements(dtype, segment, rule, [&](auto* p, const auto* g, auto* first, auto* second, const auto& a) {
    return measure_loop(p, g, first, second, segment.count, a);
  });
}

#define MPIGRAD_MAKE_UPDATE(Rule) template void update(DType, const UpdateSegment&, const RuleOfStep<Rule>&);
#define MPIGRAD_MAKE_MEASURE(Rule) template SquaredNorms measure(DType, const UpdateSegment&, const RuleOfStep<Rule>&);
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_MAKE_UPDATE)
MPIGRAD_MAKE_UPDATE(AverageRule)
MPIGRAD_TRUST_RATIO_RULES(MPIGRAD_MAKE_MEASURE)

}  // namespace mpigrad::detail
