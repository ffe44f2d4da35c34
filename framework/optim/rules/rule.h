#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_RULE_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_RULE_H
// Rules of optimizers and their common attributes. nvcc compiles the rules, so this header includes no tensors.
//
// An optimizer is one rule, a struct of the numbers that stay the same from step to step, with
//
//     Attributes                  set by users: learning_rate, weight_decay, groups, replicated and those of the rule
//   name                        its name on command lines
//   takes_momentum              optional: it uses the momentum of the command line
//   of(attributes)              makes the rule; Error: wrong attributes
//   states()                    the names of its arrays of state, at most two, in checkpoints
//   corrections(t)              optional: 1 - beta^t of both moments in step t
//   numbers<T>(StepNumbers)     Numbers<T>: what the update of one element of a parameter needs
//   Numbers<T>::update(p, g)    one element; overloads (p, g, first) and (p, g, first, second) with state
//
// and, if its rate is scaled by a trust ratio,
//
//   ratio(|weights|, |step|, weight_decay)
//   Numbers<T>::prepare(g, first, second) optional: runs before the norms and changes the state, which update() then only reads
//   Numbers<T>::measured(g) or (p, g, first, second)   the element of the step that enters its norm

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/optim/update.h"

namespace mpigrad {

struct Parameter;
class Parameters;

// Parameters with their own learning rate or weight decay. The first group that contains a parameter applies; without a group the
// factor is 1 and weight decay applies to parameters whose `decay` is true.
struct ParameterGroup {
  std::function<bool(const Parameter&)> contains{};
  double learning_rate_factor = 1;
  std::optional<double> weight_decay{};  // for all parameters of the group, whatever their `decay`
};

// Sums squared norms over ranks, two for each parameter (of its weights, and of the step that they are compared with), so that
// they hold for whole parameters. It is needed only for parameters that are cut over ranks without a layout: parameters that are
// the same on all ranks need no sum, and those of a split layout are summed without it. Each rank passes the squares of its
// parts; sum_norms_over() of comm/distributed/optimizer_reductions.h returns such a function. Called once per step, on every
// rank.
using NormReduction = std::function<void(const Parameters& parameters, std::span<double> squares)>;

// Errors: [rule] `name` is in [0, 1), or is not negative, got `value`; `message`. Used instead of require(), whose formats nvcc
// 13 does not compile.
void require_fraction(const char* rule, const char* name, double value);
void require_not_negative(const char* rule, const char* name, double value);
void require_rule(bool condition, const char* message);

// The optimizer of a rule (framework/optim/optimizer.h).
template <class Rule>
class RuleOptimizer;

}  // namespace mpigrad

#endif
