#ifndef MPIGRAD_FRAMEWORK_OPTIM_RULES_RULE_H
#define MPIGRAD_FRAMEWORK_OPTIM_RULES_RULE_H
// What the attributes of optimizers have in common. nvcc reads the rules, so they include no tensors.
//
// An optimizer is one rule, a struct of the numbers that stay the same from step to step, with
//
//   Attributes                  what users give: learning_rate, weight_decay, groups and its own
//   name                        on command lines
//   takes_momentum              optional: the command line's momentum is for it
//   of(attributes)              the rule; refuses wrong attributes
//   states()                    the names of its arrays of state, at most two, in checkpoints
//   corrections(t)              optional: 1 - beta^t of both moments in step t
//   numbers<T>(StepNumbers)     Numbers<T>: what the update of one element of a parameter needs
//   Numbers<T>::update(p, g)    one element; overloads (p, g, first) and (p, g, first, second) with state
//
// and, if its rate is scaled by a trust ratio,
//
//   ratio(|weights|, |step|, weight_decay)
//   Numbers<T>::prepare(g, first, second)         optional: before the norms, instead of a state that update() changes
//   Numbers<T>::measured(g) or (p, g, first, second)   an element of the step that the norm is of

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/optim/update.h"

namespace mpigrad {

struct Parameter;
class Parameters;

// Parameters that are treated differently. The first group that contains a parameter counts; without one, the factor is 1 and
// weight decay applies to parameters whose `decay` is true.
struct ParameterGroup {
  std::function<bool(const Parameter&)> contains{};
  double learning_rate_factor = 1;
  std::optional<double> weight_decay{};  // for all of the group, whatever their `decay` says
};

// Makes squared norms, two for each parameter (of weights, of what they are compared with), those of whole parameters. Parameters
// that are the same on all ranks need nothing, and those of a split layout are added up without it; of parameters that are cut
// over ranks otherwise, each rank hands in its part's squares, which are to be summed over these ranks: sum_norms_over() of
// comm/distributed/optimizer_reductions.h makes such a function. Called once a step, on every rank.
using NormReduction = std::function<void(const Parameters& parameters, std::span<double> squares)>;

// Errors: [rule] `name` is in [0, 1), or is not negative, got `value`; `message`. Not require(): nvcc 13 does not read its
// formats.
void require_fraction(const char* rule, const char* name, double value);
void require_not_negative(const char* rule, const char* name, double value);
void require_rule(bool condition, const char* message);

// The optimizer of a rule (framework/optim/optimizer.h).
template <class Rule>
class RuleOptimizer;

}  // namespace mpigrad

#endif
