// Statistics of volumes against plane waves and the box's symmetries; the regression on them on any number of ranks.

#include "examples/tools/universe/spectrum.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>

#include "examples/tools/universe/simulation.h"
#include "examples/tools/universe/spectrum_regression.h"
#include "framework/base/error.h"
#include "models/data/sources/function.h"
#include "models/data/sources/memory.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using universe::VolumeStatistics;

namespace {

using Cell = std::array<std::int64_t, 3>;

// [n, n, n, channels] of f(cell, channel).
template <class F>
std::vector<double> volume(std::int64_t n, std::int64_t channels, const F& f) {
  std::vector<double> values;
  for (std::int64_t x = 0; x < n; ++x)
    for (std::int64_t y = 0; y < n; ++y)
      for (std::int64_t z = 0; z < n; ++z)
        for (std::int64_t c = 0; c < channels; ++c) values.push_back(f(Cell{x, y, z}, c));
  return values;
}

// Clumped counts, many of them 0.
std::vector<double> clumps(std::int64_t n, std::int64_t channels, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  return volume(n, channels, [&](const Cell&, std::int64_t) { return std::floor(std::exp(normal(random))); });
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

// Simulated universes as one source, with their parameters.
data::SourcePtr universes(std::int64_t n, std::uint64_t count) {
  std::vector<double> counts, parameters;
  on_ranks(1, [&](const Communicator& world) {
    const universe::SlabFft fft(world.shared_transport(), n);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto made = universe::simulate(fft, {.size = n, .cell = 4, .seed = 4}, i);
      counts.insert(counts.end(), made.counts.begin(), made.counts.end());
      parameters.insert(parameters.end(), made.draw.unit.begin(), made.draw.unit.end());
    }
  });
  const auto samples = static_cast<std::int64_t>(count);
  return data::from_tensors(from_vector({samples, n, n, n, 4}, counts, DType::int16), from_vector({samples, 4}, parameters),
                            {.transform = data::Transform::log1p});
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// Positive numbers of one channel, n^3 cells each.
data::SourcePtr one_channel(std::int64_t n, std::int64_t count, const std::function<double(std::int64_t)>& scale) {
  std::vector<double> values, targets;
  for (std::int64_t i = 0; i < count; ++i) {
    for (const double v : clumps(n, 1, static_cast<std::uint64_t>(i))) values.push_back(scale(i) * v);
    targets.push_back(static_cast<double>(i));
  }
  return data::from_tensors(from_vector({count, n, n, n, 1}, values), from_vector({count, 1}, targets));
}

}  // namespace

TEST_CASE("spectrum: edges are 1 apart, and widen where 17 bins would not reach the last frequency") {
  CHECK(universe::spectrum_edges(2) == std::vector<double>{0.5, 1.5});
  CHECK(universe::spectrum_edges(7) == std::vector<double>{0.5, 1.5, 2.5, 3.5});
  const auto of_32 = universe::spectrum_edges(32);
  CHECK(of_32.size() == 17);
  for (std::size_t i = 0; i < of_32.size(); ++i) CHECK(of_32[i] == 0.5 + static_cast<double>(i));
  for (const std::int64_t n : {34, 35, 64, 256}) {
    const auto edges = universe::spectrum_edges(n);
    CHECK(edges.size() == 18);
    CHECK(edges.back() == 0.5 + static_cast<double>(n / 2));
    for (std::size_t i = 1; i < edges.size(); ++i) CHECK(edges[i] - edges[i - 1] >= 1);
  }
}

TEST_CASE("spectrum: every plane wave has its power in its bin") {
  // One wave in each bin, of amplitudes 0.1, 0.2, ...; -k is a mode of its own but for frequencies n/2.
  const std::vector<std::pair<std::int64_t, std::vector<Cell>>> boxes{{8, {{0, 1, 0}, {0, 0, 2}, {2, 1, -2}, {4, 0, 0}}},
                                                                      {9, {{1, 0, 0}, {-1, 0, 2}, {1, -3, 0}, {0, 0, 4}}}};
  for (const auto& [n, waves] : boxes) {
    const auto cells = static_cast<double>(n * n * n);
    const auto field = [&, n = n](const std::vector<Cell>& of) {
      return volume(n, 1, [&](const Cell& at, std::int64_t) {
        double value = 1;
        for (std::size_t w = 0; w < of.size(); ++w)
          value += 0.1 * static_cast<double>(w + 1) *
                   std::cos(2 * std::numbers::pi / static_cast<double>(n) *
                            static_cast<double>(of[w][0] * at[0] + of[w][1] * at[1] + of[w][2] * at[2]));
        return 3 * value;
      });
    };
    const auto edges = universe::spectrum_edges(n);
    std::vector<double> modes(edges.size() - 1);
    for (std::int64_t x = -((n - 1) / 2); x <= n / 2; ++x)
      for (std::int64_t y = -((n - 1) / 2); y <= n / 2; ++y)
        for (std::int64_t z = -((n - 1) / 2); z <= n / 2; ++z)
          for (std::size_t b = 0; b < modes.size(); ++b) {
            const double k = std::sqrt(static_cast<double>(x * x + y * y + z * z));
            modes[b] += k >= edges[b] && k < edges[b + 1] ? 1 : 0;
          }
    const VolumeStatistics statistics(n);
    const auto of = statistics(field(waves), 1);
    REQUIRE(static_cast<std::int64_t>(of.size()) == statistics.per_channel());
    REQUIRE(of.size() == waves.size() + 3);
    double variance = 0;
    for (std::size_t b = 0; b < waves.size(); ++b) {
      CAPTURE(n);
      CAPTURE(b);
      const double amplitude = 0.1 * static_cast<double>(b + 1);
      const bool own = 2 * waves[b][0] == n;  // its own conjugate
      const double power = (own ? 1 : 0.5) * amplitude * amplitude * cells * cells;
      CHECK(std::exp(of[b]) == doctest::Approx(power / modes[b] / cells).epsilon(1e-10));
      variance += power / cells / cells;
    }
    CHECK(std::exp(of[waves.size()]) == doctest::Approx(variance).epsilon(1e-10));
    CHECK(of.back() == doctest::Approx(std::log(1e-9)));
    CHECK_FALSE(all_finite(statistics(field({waves.front()}), 1)));  // no power in the other bins
  }
}

TEST_CASE("spectrum: one-point numbers of a channel whose contrast is known") {
  const VolumeStatistics statistics(4);
  // One cell of 16 has 16 counts, the others none: d = 15 or -1. The other channel is not looked at.
  const auto noise = clumps(4, 1, 1);
  const auto of = statistics(volume(4, 2,
                                    [&](const Cell& at, std::int64_t c) {
                                      const auto i = (at[0] * 4 + at[1]) * 4 + at[2];
                                      if (c == 0) return noise[static_cast<std::size_t>(i)];
                                      return i == 1 || i == 7 || i == 30 || i == 53 ? 16.0 : 0.0;
                                    }),
                             2);
  REQUIRE(of.size() == 10);
  CHECK(of[7] == doctest::Approx(std::log(15.0)));
  CHECK(of[8] == doctest::Approx((std::pow(15, 3) - 15) / 16 / std::pow(15, 1.5)));
  CHECK(of[9] == doctest::Approx(std::log(15.0 / 16)));
  CHECK(has(error_text([&] { statistics(std::vector<double>(100), 1); }), "100 numbers are not 4^3 cells"));
}

TEST_CASE("spectrum: flips, transpositions and periodic shifts change nothing") {
  for (const std::int64_t n : {12, 9}) {
    const VolumeStatistics statistics(n);
    const auto counts = clumps(n, 2, 5);
    const auto moved = [&](const std::function<Cell(const Cell&)>& from) {
      return statistics(volume(n, 2,
                               [&](const Cell& at, std::int64_t c) {
                                 const auto [x, y, z] = from(at);
                                 return counts[static_cast<std::size_t>(((x * n + y) * n + z) * 2 + c)];
                               }),
                        2);
    };
    const auto same = statistics(counts, 2);
    CHECK(largest_difference(same, moved([&](const Cell& at) { return Cell{n - 1 - at[0], at[1], n - 1 - at[2]}; })) < 1e-12);
    CHECK(largest_difference(same, moved([](const Cell& at) { return Cell{at[2], at[0], at[1]}; })) < 1e-12);
    CHECK(largest_difference(same, moved([&](const Cell& at) { return Cell{(at[0] + 3) % n, at[1], (at[2] + 7) % n}; })) < 1e-12);
    std::vector<double> doubled;
    for (const double count : counts) doubled.push_back(2 * count);
    CHECK(largest_difference(same, statistics(doubled, 2)) < 1e-12);
  }
}

TEST_CASE("spectrum: volumes without one") {
  const VolumeStatistics statistics(6);
  for (const double value : {0.0, 0.1, 7.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK_FALSE(all_finite(statistics(std::vector<double>(216, value), 1)));
  auto negative = clumps(6, 1, 2);
  for (auto& value : negative) value -= 100;
  CHECK_FALSE(all_finite(statistics(negative, 1)));
}

TEST_CASE("baseline: the same on any number of ranks and threads, and from the note; sigma_8 is seen") {
  const auto source = universes(16, 80);
  const auto training = range(0, 60), test = range(60, 80);
  std::string note;
  std::vector<double> predicted;
  for (const auto& [ranks, threads] : {std::pair{1, 1}, {1, 5}, {2, 2}, {3, 1}})
    check_on_ranks(ranks, "baseline", [&, threads = threads](const Communicator& world) {
      omp_set_num_threads(threads);  // of this rank's thread, which ends with it
      const auto baseline = universe::fit_baseline(world, *source, training);
      const auto made = universe::predict_baseline(world, *source, test, baseline);
      CHECK(baseline.missing.empty());
      CHECK(made.missing.empty());
      if (note.empty()) note = universe::to_note(baseline), predicted = made.values;
      CHECK(universe::to_note(baseline) == note);
      CHECK(made.values == predicted);
      CheckpointInfo info;
      info.notes = {{universe::baseline_note, note}};
      CHECK(universe::predict_baseline(world, *source, test, universe::baseline_of("w.h5", info, 4)).values == predicted);
    });
  REQUIRE(predicted.size() == 80);
  double error = 0, of_zero = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    const double truth = source->targets(test[i])[1];
    error += std::pow(predicted[4 * i + 1] - truth, 2), of_zero += truth * truth;
  }
  CHECK(error < 0.6 * of_zero);
}

TEST_CASE("baseline: where there is none it says why, on every rank the same") {
  const auto fine = one_channel(4, 6, [](std::int64_t) { return 1; });
  const auto empty = one_channel(4, 6, [](std::int64_t i) { return i == 4 ? 0 : 1; });
  const auto other = one_channel(6, 2, [](std::int64_t) { return 1; });
  const auto single = one_channel(1, 3, [](std::int64_t) { return 1; });
  for (const int ranks : {1, 3})
    check_on_ranks(ranks, "no baseline", [&](const Communicator& world) {
      const auto why = [&](const data::SourcePtr& source, std::int64_t count) {
        return universe::fit_baseline(world, *source, range(0, count)).missing;
      };
      CHECK(why(fine, 6).empty());
      CHECK(why(empty, 4).empty());
      CHECK(has(why(empty, 6), "channel 1 of tensor [4] has no power spectrum"));
      CHECK(has(why(fine, 1), "two training samples"));
      CHECK(has(why(single, 3), "volumes of 1^3 cells are not of 2^3 to 128^3"));
      const auto baseline = universe::fit_baseline(world, *fine, range(0, 6));
      CHECK(has(universe::predict_baseline(world, *other, {0}, baseline).missing, "of volumes of 4^3 x 1, these are 6^3 x 1"));
      CHECK(has(universe::predict_baseline(world, *empty, {1, 4}, baseline).missing, "tensor [4]"));
      CheckpointInfo info;
      info.notes = {{universe::baseline_note, universe::to_note({.missing = "for a reason"})}};
      CHECK(universe::predict_baseline(world, *fine, {0}, universe::baseline_of("w.h5", info, 1)).missing == "for a reason");
    });
}

TEST_CASE("baseline: a sample that cannot be read is an error on all ranks, whichever thread reads it") {
  const data::FunctionSource broken(
      {.size = 6,
       .extents = {4, 4, 4},
       .values = [](std::int64_t sample, const Box&,
                    std::span<float>) { require(sample != 4, "[test] sample {} is broken", sample); },
       .targets = [](std::int64_t) { return std::vector<double>{1}; }});
  for (const int ranks : {1, 2})
    on_ranks(ranks, [&](const Communicator& world) {
      omp_set_num_threads(3);
      CHECK(has(error_text([&] { universe::fit_baseline(world, broken, range(0, 6)); }), "sample 4 is broken"));
    });
}

TEST_CASE("baseline: weights without the note have none, and notes that are none are refused") {
  CheckpointInfo info;
  CHECK(has(universe::baseline_of("w.h5", info, 1).missing, "older"));
  const auto refused = [&](const std::string& note, const std::string& why) {
    CAPTURE(note);
    info.notes = {{universe::baseline_note, note}};
    const auto text = error_text([&] { universe::baseline_of("w.h5", info, 1); });
    CHECK(has(text, "[weights] w.h5: the note 'spectrum regression' " + why));
  };
  const std::string four = "[1,2,3,4]", start = R"({"side":2,"channels":1,"mean":[1,2,3,4],)";
  info.notes = {{universe::baseline_note, start + R"("scale":[1,2,3,4],"offset":[0],"weight":[1,2,3,4]})"}};
  CHECK(universe::baseline_of("w.h5", info, 1).ridge.scale == std::vector<double>{1, 2, 3, 4});
  for (const std::string& rest : {std::string(R"("scale":[1,2,3],"offset":[0],"weight":[1,2,3,4]})"),
                                  std::string(R"("scale":[1,2,3,4],"weight":[1,2,3,4]})"),
                                  std::string(R"("scale":[1,0,3,4],"offset":[0],"weight":[1,2,3,4]})"),
                                  std::string(R"("scale":[1,2,3,4],"offset":[0,0],"weight":[1,2,3,4,1,2,3,4]})"),
                                  std::string(R"("scale":[1,2,3,4],"offset":[null],"weight":[1,2,3,4]})"),
                                  std::string(R"("scale":[1,2,3,4],"offset":[1e999],"weight":[1,2,3,4]})")})
    refused(start + rest, "holds no regression");
  for (const auto* note : {"", "7", "{", R"({"side":-1})", R"({"missing":3})"}) refused(note, "holds no regression");
  for (const auto* side : {"0", "1", "4", "1e9", "-2"})
    refused(fmt::format(R"({{"side":{},"channels":1,"mean":{},"scale":{},"offset":[0],"weight":{}}})", side, four, four, four),
            "holds no regression");
  refused(std::string(100, '['), "has ");
}
