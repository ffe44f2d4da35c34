#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/error.h"
#include "framework/base/joined.h"

namespace mpigrad::schedule {
namespace {

// The fraction of `steps` that has passed, 0 to 1.
double progress(const char* name, std::int64_t step, std::int64_t steps) {
  require(steps > 0, "[schedule] {} over {} steps; at least 1 is needed", name, steps);
  return static_cast<double>(std::clamp<std::int64_t>(step, 0, steps)) / static_cast<double>(steps);
}

}  // namespace

double Constant::operator()(std::int64_t) const { return rate; }

double Cosine::operator()(std::int64_t step) const {
  return final_rate + (rate - final_rate) * (1 + std::cos(std::numbers::pi * progress("cosine", step, steps))) / 2;
}

double Step::operator()(std::int64_t step) const {
  require(std::is_sorted(milestones.begin(), milestones.end()), "[schedule] milestones are not ascending: {}",
          joined(milestones, ", "));
  const auto reached = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
  return rate * std::pow(factor, static_cast<double>(reached));
}

double Polynomial::operator()(std::int64_t step) const {
  return final_rate + (rate - final_rate) * std::pow(1 - progress("polynomial", step, steps), power);
}

double WarmUp::operator()(std::int64_t step) const {
  if (step >= steps) return then(step - steps);
  return from + (then(0) - from) * progress("warm-up", step, steps);
}

}  // namespace mpigrad::schedule
