// The optimizers of all rules.

#include <algorithm>
#include <type_traits>

#include "framework/optim/optimizer.h"
#include "framework/optim/update_cpu.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {

void require_fraction(const char* rule, const char* name, double value) {
  require(value >= 0 && value < 1, "[{}] {} is in [0, 1), got {}", rule, name, value);
}
void require_not_negative(const char* rule, const char* name, double value) {
  require(value >= 0, "[{}] {} is not negative, got {}", rule, name, value);
}
void require_rule(bool condition, const char* message) { require(condition, "{}", message); }

template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(Parameters& parameters, const typename Rule::Attributes& a)
    : Optimizer(parameters, a.learning_rate, a.weight_decay, a.groups, Rule::of(a).states(), a.replicated), rule_(Rule::of(a)) {
  if constexpr (HasTrustRatio<Rule>) reduce_norms_ = a.reduce_norms;
}

template <class Rule>
std::array<double, 2> RuleOptimizer<Rule>::corrections() const {
  if constexpr (requires { rule_.corrections(1.0); }) return rule_.corrections(static_cast<double>(steps()));
  else return {1, 1};
}

template <class Rule>
RuleOfStep<Rule> RuleOptimizer<Rule>::of_step(const GradientScale& scale) const {
  const auto of_moments = corrections();
  return {.rule = rule_, .scale = scale, .correction1 = of_moments[0], .correction2 = of_moments[1]};
}

template <class Rule>
void RuleOptimizer<Rule>::prepare(std::span<UpdateSegment> segments, const GradientScale& scale) {
  if constexpr (HasTrustRatio<Rule>) {
    const auto rule = of_step(scale);
    const auto squares = sum_squares(
        segments, [&](DType dtype, const UpdateSegment& part) { return detail::measure(dtype, part, rule); }, reduce_norms_);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      auto& segment = segments[i];
      segment.rate *= trust_ratio(rule_, segment.ratio, squares[2 * i], squares[2 * i + 1], segment.decay);
    }
  }
}

template <class Rule>
void RuleOptimizer<Rule>::update(DType dtype, const UpdateSegment& part, const GradientScale& scale) const {
  detail::update(dtype, part, of_step(scale));
}

template <class Rule>
void RuleOptimizer<Rule>::update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const {
  auto rule = of_step(scale);
  if constexpr (HasTrustRatio<Rule>) {
    std::vector<Tensor> squares;  // on the GPU
    const auto numbers = [](const Tensor& x) { return reinterpret_cast<double*>(x.raw()); };
    for (const auto& group : groups) {
      const auto n = 2 * static_cast<std::int64_t>(group.segments.size());
      squares.push_back(Tensor({Shape{n}, DType::float64}, DeviceKind::cuda));
      cuda::measure(group.dtype, group.segments, rule, numbers(squares.back()));
    }
    reduce_squares(groups, squares, reduce_norms_);
    for (std::size_t k = 0; k < groups.size(); ++k) {
      rule.squares = numbers(squares[k]);
      cuda::update(groups[k].dtype, groups[k].segments, rule);
    }
  } else {
    for (const auto& group : groups) cuda::update(group.dtype, group.segments, rule);
  }
}

#define MPIGRAD_MAKE_OPTIMIZER(Rule) template class RuleOptimizer<Rule>;
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_MAKE_OPTIMIZER)

namespace {

// Calls f(Rule's type identity) for all rules, in the order of their list.
template <class F>
void for_rules(const F& f) {
#define MPIGRAD_CALL(Rule) f(std::type_identity<Rule>());
  MPIGRAD_OPTIMIZER_RULES(MPIGRAD_CALL)
}

template <class Rule>
constexpr bool takes_momentum = requires {
  Rule::takes_momentum;
};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for_rules([&]<class Rule>(std::type_identity<Rule>) { names.push_back(Rule::name); });
  return names;
}

std::vector<std::string> optimizers_with_momentum() {
  std::vector<std::string> names;
  for_rules([&]<class Rule>(std::type_identity<Rule>) {
    if (takes_momentum<Rule>) names.push_back(Rule::name);
  });
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, Parameters& parameters, const OptimizerOptions& options) {
  std::unique_ptr<Optimizer> made;
  for_rules([&]<class Rule>(std::type_identity<Rule>) {
    if (name != Rule::name) return;
    typename Rule::Attributes attributes;
    attributes.learning_rate = options.learning_rate;
    attributes.weight_decay = options.weight_decay;
    attributes.replicated = options.replicated;
    if constexpr (takes_momentum<Rule>) attributes.momentum = options.momentum;
    made = std::make_unique<RuleOptimizer<Rule>>(parameters, attributes);
  });
  require(made != nullptr, "[optimizer] there is no optimizer {}", name);
  return made;
}

}  // namespace mpigrad
