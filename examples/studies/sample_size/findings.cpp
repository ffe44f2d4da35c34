// The gain of larger samples, in numbers and sentences.

#include <fmt/format.h>

#include <algorithm>

#include "examples/studies/sample_size/report.h"
#include "examples/tools/universe/simulation.h"
#include "framework/base/error.h"
#include "framework/base/joined.h"

namespace mpigrad::sample_size {
namespace {

double mean(const std::array<double, 4>& values) { return (values[0] + values[1] + values[2] + values[3]) / 4; }

// The scores of one parameter at one size.
struct View {
  Score cube, scaled, nothing, regression;
  double floor = 0;
};
View view(const SizeResult& r, std::size_t parameter) {
  const auto& s = r.scores;
  const auto& regression = r.regression.cube;
  if (parameter < 4)
    return {s.cube[parameter], s.scaled[parameter], s.nothing[parameter], regression[parameter], r.floor_cube[parameter]};
  return {mean_of(s.cube), mean_of(s.scaled), mean_of(s.nothing), mean_of(regression), mean(r.floor_cube)};
}

std::int64_t seen(const SizeResult& r) { return r.cubes * r.size * r.size * r.size; }

Verdict judge(const Finding& finding, const View& large, bool same_volume) {
  if (factor(large.nothing, large.cube, Of::same_trainings).wide.low <= 1) return Verdict::nothing_learned;
  if (!finding.lower) return Verdict::no_gain;
  if (!same_volume) return Verdict::other_volume;
  if (finding.remaining.wide.low > 1) return Verdict::size;
  return finding.remaining.wide.high <= as_good ? Verdict::volume : Verdict::undecided;
}

std::string number(double value) { return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value); }
std::string text(const Interval& interval) { return fmt::format("{} to {}", number(interval.low), number(interval.high)); }
std::string text(const Factor& factor) { return fmt::format("{} (95 %: {})", number(factor.value), text(factor.wide)); }

std::string gain_in_words(const Finding& f, const SizeResult& small, const SizeResult& large, const View& of_small,
                          const View& of_large) {
  auto words = fmt::format("{}: cubes of {}^3 are predicted with an error of {}, those of {}^3 with {}", f.name, small.size,
                           number(of_small.cube.error), large.size, number(of_large.cube.error));
  if (f.lower) words += fmt::format(": lower by a factor {}", text(f.gain));
  else if (f.gain.wide.high < 1) words += fmt::format(": higher, the factor is {}", text(f.gain));
  else words += fmt::format(": no difference that can be told, a factor {}", text(f.gain));
  return words + fmt::format("; published, from {}^3 to {}^3: an order of magnitude.", published.from, published.to);
}

std::string floor_in_words(const Finding& f, const SizeResult& large, const View& of_large) {
  auto words = fmt::format("The limit of a Gaussian field in these volumes allows a factor {}, which is {} {:.0f}; ",
                           number(f.floor_gain), f.floor_allows ? "at least" : "less than", published.factor);
  if (of_large.cube.wide.high < of_large.floor)
    return words + fmt::format("the error at {}^3 is below that floor ({} of it), as fields that are not Gaussian allow.",
                               large.size, number(f.of_floor));
  return words + fmt::format("the error at {}^3 is {} times that floor.", large.size, number(f.of_floor));
}

std::string regression_in_words(const Finding& f, const SizeResult& small, const SizeResult& large, const View& of_small,
                                const View& of_large) {
  return fmt::format(
      "A regression on the power spectra of the same cubes has {} at {}^3 and {} at {}^3, a factor {}; the network's error "
      "at {}^3 is {} times the regression's.",
      number(of_small.regression.error), small.size, number(of_large.regression.error), large.size, text(f.regression_gain),
      large.size, text(f.over_regression));
}

std::string average_in_words(const Finding& f, const SizeResult& small, const SizeResult& large) {
  const auto averages = fmt::format("Averages over the {} cubes of {}^3 of a universe", small.cubes, small.size);
  const auto same_volume = fmt::format("{}, scaled, have {} times the error of {}^3 with the same volume in sight", averages,
                                       text(f.remaining), large.size);
  switch (f.verdict) {
    case Verdict::volume:
      return fmt::format(
          "{}: they are as good, and what counts is the volume that the prediction sees and not the size of a sample.",
          same_volume);
    case Verdict::size:
      return fmt::format(
          "{}: averaging gains a factor {}, and larger samples help beyond the volume in sight, by the long waves that they hold "
          "or in learning.",
          same_volume, text(f.averaging));
    case Verdict::undecided:
      return fmt::format("{}: too few universes to say whether only the volume makes the difference.", same_volume);
    case Verdict::no_gain: return "There is no gain that the size of a sample or the volume could be the reason of.";
    case Verdict::nothing_learned:
      return fmt::format("Not even at {}^3 is it predicted better than by the prior's mean, as far as these universes tell.",
                         large.size);
    case Verdict::other_volume:
      return fmt::format("{} see another volume than the cubes of {}^3, so that they do not tell size and volume apart.",
                         averages, large.size);
  }
  return {};
}

// Names of the parameters for which `holds` is true.
template <class F>
std::string those(const std::vector<Finding>& findings, F holds) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < 4; ++p)
    if (holds(findings[p])) names.push_back(findings[p].name);
  return names.empty() ? std::string("none") : joined(names, ", ");
}

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::volume: return "volume";
    case Verdict::size: return "size";
    case Verdict::undecided: return "undecided";
    case Verdict::no_gain: return "no_gain";
    case Verdict::nothing_learned: return "nothing_learned";
    case Verdict::other_volume: return "other_volume";
  }
  return "?";
}

std::vector<Finding> find(const Results& results) {
  require(results.sizes.size() >= 2, "[sample_size] a comparison needs at least two sizes, got {}", results.sizes.size());
  const auto &small = results.sizes.front(), &large = results.sizes.back();
  require(small.size < large.size, "[sample_size] sizes ascend, got {} before {}", small.size, large.size);
  std::vector<Finding> findings;
  for (std::size_t p = 0; p <= 4; ++p) {
    const auto a = view(small, p), b = view(large, p);
    Finding f{.name = p < 4 ? universe::parameter_names[p] : "mean of all"};
    f.gain = factor(a.cube, b.cube, Of::other_trainings), f.averaging = factor(a.cube, a.scaled, Of::same_trainings);
    f.remaining = factor(a.scaled, b.scaled, Of::other_trainings);
    f.regression_gain = factor(a.regression, b.regression, Of::same_trainings);
    f.over_regression = factor(b.cube, b.regression, Of::other_trainings);
    f.floor_gain = a.floor / b.floor, f.of_floor = b.cube.error / b.floor;
    f.lower = f.gain.wide.low > 1;
    f.reaches = f.gain.value >= published.factor;
    f.may_reach = f.gain.wide.high >= published.factor;
    f.floor_allows = f.floor_gain >= published.factor;
    f.verdict = judge(f, b, seen(small) == seen(large));
    findings.push_back(std::move(f));
  }
  return findings;
}

std::vector<std::string> sentences(const Results& results) {
  const auto findings = find(results);
  const auto &small = results.sizes.front(), &large = results.sizes.back();
  std::vector<std::string> lines;
  for (std::size_t p = 0; p < findings.size(); ++p) {
    const auto& f = findings[p];
    const auto of_small = view(small, p), of_large = view(large, p);
    lines.push_back(gain_in_words(f, small, large, of_small, of_large) + " " + floor_in_words(f, large, of_large) + " " +
                    regression_in_words(f, small, large, of_small, of_large) + " " + average_in_words(f, small, large));
  }
  const auto named = [&](Verdict verdict) { return those(findings, [&](const Finding& f) { return f.verdict == verdict; }); };
  lines.push_back(fmt::format(
      "Larger samples, of {}^3 and not {}^3, are predicted better: {}. The order of magnitude that Oyama et al. 2020 report from "
      "{}^3 to {}^3 (arXiv:2007.12856) is reached: {}; not excluded by the interval: {}; allowed by the floor: {}.",
      large.size, small.size, those(findings, [](const Finding& f) { return f.lower; }), published.from, published.to,
      those(findings, [](const Finding& f) { return f.reaches; }), those(findings, [](const Finding& f) { return f.may_reach; }),
      those(findings, [](const Finding& f) { return f.floor_allows; })));
  lines.push_back(
      fmt::format("What counts is the volume in sight and not the size of a sample: {}. Size beyond volume: {}. Not decided: {}. "
                  "Nothing learned: {}.",
                  named(Verdict::volume), named(Verdict::size), named(Verdict::undecided), named(Verdict::nothing_learned)));
  lines.push_back(fmt::format("Predicted better by the network than by the regression at {}^3: {}; worse: {}.", large.size,
                              those(findings, [](const Finding& f) { return f.over_regression.wide.high < 1; }),
                              those(findings, [](const Finding& f) { return f.over_regression.wide.low > 1; })));
  const auto trainings = small.scores.cube[0].of_training.size();
  lines.push_back(fmt::format("Intervals are of {} test universes drawn anew; {}.", large.scores.universes,
                              trainings > 1
                                  ? fmt::format("those of factors hold the spread of {} trainings per size, too", trainings)
                                  : std::string("with one training per size, what another seed gives is not in them")));
  return lines;
}

}  // namespace mpigrad::sample_size
