#include "examples/studies/hpo/strategy.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/tensor/random.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::hpo {
namespace {

using tool::UsageError;

// The value at `t` from 0 to 1.
std::string at(const Parameter& p, double t) {
  double value = p.log ? p.from * std::pow(p.to / p.from, t) : p.from + (p.to - p.from) * t;
  value = std::clamp(value, p.from, p.to);
  return p.integer ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

std::vector<std::string> points_of(const Parameter& p) {
  if (!p.is_range()) return p.values;
  if (p.points == 0)
    throw UsageError(fmt::format("a grid needs points = N for the range {}, or a list, or --strategy random", p.name));
  std::vector<std::string> result;
  for (int i = 0; i < p.points; ++i) {
    const auto value = at(p, static_cast<double>(i) / (p.points - 1));
    if (result.empty() || result.back() != value) result.push_back(value);  // whole numbers may be closer than points
  }
  return result;
}

std::string draw(const Parameter& p, const Philox& random, std::uint64_t place) {
  if (!p.is_range()) return p.values[random.below(place, p.values.size())];
  // Each whole number is as probable as its share of the range; on a log scale of its logarithm.
  if (p.integer && p.log)
    return fmt::format("{:.0f}", std::min(p.to, std::floor(p.from * std::pow((p.to + 1) / p.from, random.uniform(place)))));
  if (p.integer) return fmt::format("{:.0f}", std::min(p.to, p.from + std::floor((p.to - p.from + 1) * random.uniform(place))));
  return at(p, random.uniform(place));
}

// eta^exponent, the largest that does not exceed `most`.
int largest_power(int most, int eta) {
  int exponent = 0;
  for (std::int64_t power = eta; power <= most; power *= eta) ++exponent;
  return exponent;
}
std::int64_t power_of(int eta, int exponent) {
  std::int64_t power = 1;
  for (int i = 0; i < exponent; ++i) power *= eta;
  return power;
}

// `first` trials; one in eta continues after each rung; the last of `last + 1` rungs has all of the resource.
Bracket bracket(std::int64_t first, int last, int most, int eta) {
  Bracket result;
  for (int i = 0; i <= last; ++i) {
    const auto trials = first / power_of(eta, i);
    const double resource = static_cast<double>(most) / static_cast<double>(power_of(eta, last - i));
    result.rungs.push_back({.trials = static_cast<int>(std::max<std::int64_t>(trials, 1)),
                            .resource = std::max(1, static_cast<int>(std::lround(resource)))});
  }
  return result;
}

}  // namespace

std::vector<Setting> grid(const Space& space) {
  std::vector<Setting> result{{}};
  for (const auto& parameter : space.parameters) {
    const auto points = points_of(parameter);
    if (result.size() * points.size() > 1'000'000) throw UsageError("the grid has more than 1000000 points");
    std::vector<Setting> longer;
    for (const auto& setting : result)
      for (const auto& point : points) {
        longer.push_back(setting);
        longer.back().push_back(point);
      }
    result = std::move(longer);
  }
  return result;
}

std::vector<Setting> draws(const Space& space, std::uint64_t seed, int trials) {
  const Philox random{.key = seed};
  std::vector<Setting> result;
  std::set<Setting> seen;
  for (std::uint64_t attempt = 0; static_cast<int>(result.size()) < trials; ++attempt) {
    if (attempt > 1000 + 100 * static_cast<std::uint64_t>(trials))
      throw UsageError(fmt::format("the space has hardly more than {} settings, fewer than {} trials", result.size(), trials));
    const auto one = random.child(attempt);
    Setting setting;
    for (std::size_t i = 0; i < space.parameters.size(); ++i) setting.push_back(draw(space.parameters[i], one, i));
    if (seen.insert(setting).second) result.push_back(std::move(setting));
  }
  return result;
}

std::vector<Bracket> hyperband(int most, int eta) {
  std::vector<Bracket> result;
  const int last = largest_power(most, eta);
  for (int s = last; s >= 0; --s) {
    // ceil((last + 1) eta^s / (s + 1))
    const auto trials = ((last + 1) * power_of(eta, s) + s) / (s + 1);
    result.push_back(bracket(trials, s, most, eta));
  }
  return result;
}

Bracket halving(int trials, int most, int eta) {
  return bracket(trials, std::min(largest_power(trials, eta), largest_power(most, eta)), most, eta);
}

int trials_of_halving(int most, int eta) { return static_cast<int>(power_of(eta, largest_power(most, eta))); }

std::vector<std::size_t> best_of(const std::vector<std::optional<double>>& values, bool minimize, std::size_t count) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i]) places.push_back(i);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return minimize ? *values[a] < *values[b] : *values[a] > *values[b]; });
  if (places.size() > count) places.resize(count);
  return places;
}

Schedule::Schedule(const Plan& plan, bool minimize) : minimize_(minimize) {
  int trial = 0;
  for (const auto& bracket : plan.brackets) {
    State state{.bracket = bracket};
    for (int i = 0; i < bracket.rungs[0].trials; ++i) state.trials.push_back(++trial);
    states_.push_back(std::move(state));
  }
}

void Schedule::record(int trial, int rung, std::optional<double> value) { ended_[{trial, rung}] = value; }

void Schedule::advance(State& state) const {
  while (state.rung + 1 < state.bracket.rungs.size()) {
    std::vector<std::optional<double>> values;
    for (const int trial : state.trials) {
      const auto found = ended_.find({trial, static_cast<int>(state.rung)});
      if (found == ended_.end()) return;
      values.push_back(found->second);
    }
    ++state.rung;
    std::vector<int> next;
    for (const auto place : best_of(values, minimize_, static_cast<std::size_t>(state.bracket.rungs[state.rung].trials)))
      next.push_back(state.trials[place]);
    state.trials = std::move(next);
  }
}

std::optional<Task> Schedule::next() {
  for (std::size_t b = 0; b < states_.size(); ++b) {
    auto& state = states_[b];
    advance(state);
    const int rung = static_cast<int>(state.rung);
    for (const int trial : state.trials) {
      if (ended_.contains({trial, rung}) || given_.contains({trial, rung})) continue;
      given_[{trial, rung}] = true;
      return Task{
          .trial = trial, .bracket = static_cast<int>(b), .rung = rung, .resource = state.bracket.rungs[state.rung].resource};
    }
  }
  return std::nullopt;
}

}  // namespace mpigrad::hpo
