// The plan of a strategy for a space.

#include <algorithm>

#include "examples/studies/hpo/search.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::hpo {

using tool::UsageError;

Plan make_plan(const Space& space, const StrategyOptions& o) {
  const bool rungs = o.name == "halving" || o.name == "hyperband";
  const int most = o.most > 0 ? o.most : space.most;
  if (o.most > 0 && space.resource.empty())
    throw UsageError(fmt::format("--most is of a resource, and {} has no [resource]", space.name));
  if (rungs && space.resource.empty())
    throw UsageError(fmt::format("--strategy {} needs [resource] in {}: option and most of what trials are given more of", o.name,
                                 space.name));
  Plan plan;
  if (o.name == "grid") {
    plan.settings = grid(space);
    if (o.trials > 0 && static_cast<int>(plan.settings.size()) > o.trials)
      plan.settings.resize(static_cast<std::size_t>(o.trials));
  } else {
    if (o.name == "hyperband" && o.trials > 0)
      throw UsageError("--trials has no effect on hyperband: --most and --eta say how many");
    int trials = o.trials;
    if (o.name == "hyperband") plan.brackets = hyperband(most, o.eta);
    else if (o.name == "halving") plan.brackets = {halving(trials > 0 ? trials : trials_of_halving(most, o.eta), most, o.eta)};
    else if (trials == 0) throw UsageError("--strategy random needs --trials");
    if (rungs) trials = 0;
    for (const auto& bracket : plan.brackets) trials += bracket.rungs[0].trials;
    if (trials > 1'000'000) throw UsageError(fmt::format("{} trials are too many", trials));
    plan.settings = draws(space, o.seed, trials);
  }
  if (!rungs) plan.brackets = {{.rungs = {{.trials = static_cast<int>(plan.settings.size()), .resource = most}}}};
  return plan;
}

std::string to_string(const Space& space, const Plan& plan) {
  std::string text;
  if (plan.brackets.size() == 1 && plan.brackets[0].rungs.size() == 1) {
    for (std::size_t i = 0; i < plan.settings.size(); ++i)
      text += fmt::format("{:5}  {}\n", i + 1, text_of(space, plan.settings[i]));
    return text + fmt::format("{} trials\n", plan.settings.size());
  }
  std::int64_t all = 0;
  for (std::size_t b = 0; b < plan.brackets.size(); ++b) {
    text += fmt::format("bracket {}\n  trials  {}\n", b + 1, space.resource);
    for (std::size_t r = 0; r < plan.brackets[b].rungs.size(); ++r) {
      const auto& rung = plan.brackets[b].rungs[r];
      text += fmt::format("  {:6}  {}\n", rung.trials, rung.resource);
      // Trials that continue already have the previous rung's resource.
      const int had = r > 0 && !space.resume.empty() ? plan.brackets[b].rungs[r - 1].resource : 0;
      all += std::int64_t{rung.trials} * (rung.resource - had);
    }
  }
  return text + fmt::format("{} trials, {} {} in all\n", plan.settings.size(), all, space.resource);
}

}  // namespace mpigrad::hpo
