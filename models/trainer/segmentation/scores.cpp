// Scores of several cases together, and the slices that are shown.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/tensor/random.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// The ends of the 95 % interval of a statistic of indices of cases, drawn with replacement.
template <class F>
std::array<double, 2> interval_of(std::size_t cases, F statistic) {
  constexpr std::size_t resamples = 2000;
  if (cases < 2) return {none, none};
  std::vector<double> values;
  std::vector<std::size_t> drawn(cases);
  for (std::size_t i = 0; i < resamples; ++i) {
    const Philox random{.key = 1, .stream = i};
    for (std::size_t k = 0; k < cases; ++k) drawn[k] = random.below(k, cases);
    if (const double value = statistic(drawn); !std::isnan(value)) values.push_back(value);
  }
  if (values.empty()) return {none, none};
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) { return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))]; };
  return {at(0.025), at(0.975)};
}

double mean_of(const std::vector<Case>& cases, std::vector<double> Case::*values, const std::vector<std::size_t>& drawn,
               std::size_t label) {
  RunningMean mean;
  for (const auto i : drawn)
    if (const double value = (cases[i].*values)[label]; !std::isnan(value)) mean.add(value);
  return mean.mean();
}

double mean_dice(const std::vector<Case>& cases, const std::vector<std::size_t>& drawn, std::int64_t classes) {
  RunningMean mean;
  for (std::size_t c = 1; c < static_cast<std::size_t>(classes); ++c)
    if (const double value = mean_of(cases, &Case::dice, drawn, c); !std::isnan(value)) mean.add(value);
  return mean.mean();
}

std::vector<std::size_t> all_of(const std::vector<Case>& cases) {
  std::vector<std::size_t> all(cases.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

Mean mean_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label) {
  Mean result;
  RunningMean mean;
  for (const auto& each : cases)
    if (const double value = (each.*values)[label]; std::isnan(value)) ++result.undefined;
    else mean.add(value);
  result.value = mean.mean();
  return result;
}

double mean_dice(const std::vector<Case>& cases, std::int64_t classes) { return mean_dice(cases, all_of(cases), classes); }
double mean_dice(const Case& of, std::int64_t classes) { return mean_dice({of}, {0}, classes); }

std::array<double, 2> dice_interval(const std::vector<Case>& cases, std::int64_t classes) {
  return interval_of(cases.size(), [&](const auto& drawn) { return mean_dice(cases, drawn, classes); });
}

std::array<double, 2> interval_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label) {
  return interval_of(cases.size(), [&](const auto& drawn) { return mean_of(cases, values, drawn, label); });
}

std::string Results::name_of(std::size_t label) const {
  const auto place = static_cast<std::int64_t>(label);
  if (place >= classes) return regions[static_cast<std::size_t>(place - classes)].name;
  return targets.empty() || label == 0 ? std::to_string(label) : targets[label - 1].name;
}

Slice slice_of(const Segmented& s, const Shape& extents, double dice) {
  const auto& labels = s.truth.empty() ? s.predicted : s.truth;
  const auto cells = extents[1] * extents[2];
  Slice slice{.sample = s.sample, .plane = extents[0] / 2, .dice = dice, .extents = {extents[1], extents[2]}};
  std::int64_t most = 0;
  for (std::int64_t d = 0; d < extents[0]; ++d) {
    const auto begin = labels.begin() + d * cells;
    const auto count = std::count_if(begin, begin + cells, [](std::int32_t label) { return label > 0; });
    if (count > most) slice.plane = d, most = count;
  }
  const auto of = [&](const std::vector<std::int32_t>& all) {
    return std::vector<std::int32_t>(all.begin() + slice.plane * cells, all.begin() + (slice.plane + 1) * cells);
  };
  slice.predicted = of(s.predicted);
  if (!s.truth.empty()) slice.truth = of(s.truth);
  return slice;
}

namespace {

void keep_worst(std::vector<Slice>& slices) {
  const auto key = [](const Slice& s) { return std::pair{std::isnan(s.dice) ? 2 : s.dice, s.sample}; };
  std::sort(slices.begin(), slices.end(), [&](const Slice& a, const Slice& b) { return key(a) < key(b); });
  if (slices.size() > most_shown) slices.resize(most_shown);
}

}  // namespace

std::vector<Slice> worst_of(const Communicator& world, std::vector<Slice> slices) {
  keep_worst(slices);
  // Each rank sends numbers: of each slice sample, plane, rows, columns, whether it has truth, and the labels; and the Dice.
  std::vector<std::int64_t> numbers, sizes(static_cast<std::size_t>(world.size()));
  for (const auto& s : slices) {
    numbers.insert(numbers.end(),
                   {s.sample, s.plane, s.extents[0], s.extents[1], s.truth.empty() ? 0 : 1, std::bit_cast<std::int64_t>(s.dice)});
    numbers.insert(numbers.end(), s.predicted.begin(), s.predicted.end());
    numbers.insert(numbers.end(), s.truth.begin(), s.truth.end());
  }
  const auto own = static_cast<std::int64_t>(numbers.size());
  world.transport().allgather(&own, sizes.data(), std::vector<std::int64_t>(sizes.size(), 1), DType::int64);
  std::vector<std::int64_t> all(
      world.rank() == 0 ? static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})) : 0);
  world.transport().gather(numbers.data(), all.data(), sizes, DType::int64, 0);
  slices.clear();
  for (std::size_t at = 0; at < all.size();) {
    Slice s{.sample = all[at],
            .plane = all[at + 1],
            .dice = std::bit_cast<double>(all[at + 5]),
            .extents = {all[at + 2], all[at + 3]}};
    const bool has_truth = all[at + 4] != 0;
    const auto cells = s.extents.elements();
    auto next = all.begin() + static_cast<std::ptrdiff_t>(at) + 6;
    s.predicted.assign(next, next + cells), next += cells;
    if (has_truth) s.truth.assign(next, next + cells), next += cells;
    at = static_cast<std::size_t>(next - all.begin());
    slices.push_back(std::move(s));
  }
  keep_worst(slices);
  return slices;
}

}  // namespace mpigrad::trainer::segmenting
