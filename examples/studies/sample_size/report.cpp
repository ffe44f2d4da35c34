#include "examples/studies/sample_size/report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "examples/tools/universe/simulation.h"
#include "framework/base/error.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::sample_size {
namespace {

using Json = nlohmann::ordered_json;

// The scores of a size, by their names in files.
struct Kind {
  const char* name;
  ParameterScores Scores::*scores;
};
constexpr std::array<Kind, 4> kinds{
    {{"cube", &Scores::cube}, {"average", &Scores::average}, {"scaled_average", &Scores::scaled}, {"nothing", &Scores::nothing}}};
struct Estimate {
  const char *name, *label;
  Scores SizeResult::*scores;
  std::optional<Scores> SizeResult::*training;
};
constexpr std::array<Estimate, 2> estimates{{{"network", "network", &SizeResult::scores, &SizeResult::training},
                                             {"regression", "P(k)", &SizeResult::regression, &SizeResult::regression_training}}};

Json to_json(const Interval& interval) { return {interval.low, interval.high}; }

Json to_json(const Score& score) {
  return {{"mse", score.error},
          {"rmse", std::sqrt(score.error)},
          {"of_training", score.of_training},
          {"spread", score.spread},
          {"r2", score.r2},
          {"percentiles_16_84", to_json(score.central)},
          {"percentiles_2.5_97.5", to_json(score.wide)}};
}

Json to_json(const Factor& factor) { return {{"factor", factor.value}, {"percentiles_2.5_97.5", to_json(factor.wide)}}; }

Json to_json(const Finding& f) {
  return {{"gain", to_json(f.gain)},
          {"regression_gain", to_json(f.regression_gain)},
          {"network_over_regression", to_json(f.over_regression)},
          {"floor_gain", f.floor_gain},
          {"error_over_floor", f.of_floor},
          {"lower", f.lower},
          {"reaches_published", f.reaches},
          {"interval_reaches_published", f.may_reach},
          {"floor_allows", f.floor_allows},
          {"gain_of_averaging", to_json(f.averaging)},
          {"averages_over_largest", to_json(f.remaining)},
          {"verdict", name_of(f.verdict)}};
}

// The error of the smallest cubes, divided by the published factor for each such ratio of sides.
double published_slope(const Results& results, std::int64_t size, std::size_t parameter) {
  const auto& smallest = results.sizes.front();
  const double ratio = std::log(static_cast<double>(size) / static_cast<double>(smallest.size)) /
                       std::log(static_cast<double>(published.to) / static_cast<double>(published.from));
  return smallest.scores.cube[parameter].error * std::pow(published.factor, -ratio);
}

// One panel. Each point and each interval is a separate series, so that intervals have no dots at their ends.
plot::Lines panel(const Results& results, std::size_t parameter, bool legend) {
  plot::Lines lines{.title = universe::parameter_names[parameter],
                    .x_label = "cells per side of a sample",
                    .y_label = "squared error / prior variance",
                    .log_x = true,
                    .log_y = true};
  struct Measured {
    Scores SizeResult::*of;
    ParameterScores Scores::*scores;
    const char* name;
  };
  const std::array<Measured, 4> measured{{{&SizeResult::scores, &Scores::cube, "one cube"},
                                          {&SizeResult::scores, &Scores::average, "average of a universe"},
                                          {&SizeResult::scores, &Scores::scaled, "average, scaled"},
                                          {&SizeResult::regression, &Scores::cube, "P(k) of one cube"}}};
  const auto label = [&](const char* text) { return legend ? std::string(text) : std::string(); };
  std::size_t colour = 0;
  std::vector<plot::Series> marks;
  // Next to each other: their intervals would overlap in one bar.
  double shift = 0.978;
  for (const auto& [of, scores, name] : measured) {
    const auto hue = plot::series_colour(colour++);
    plot::Series line{.label = label(name), .colour = hue};
    for (const auto& result : results.sizes) {
      const auto& score = (result.*of.*scores)[parameter];
      const double x = static_cast<double>(result.size) * shift;
      line.x.push_back(x), line.y.push_back(score.error);
      marks.push_back({.x = {x}, .y = {score.error}, .colour = hue});
      marks.push_back({.x = {x, x}, .y = {score.wide.low, score.wide.high}, .colour = hue});
    }
    lines.series.push_back(std::move(line));
    shift += 0.015;
  }
  plot::Series cube{.label = label("floor of a cube"), .colour = plot::Colour{0.35, 0.35, 0.38}};
  plot::Series box{.label = label("floor of the box"), .colour = plot::Colour{0.70, 0.70, 0.73}};
  for (const auto& result : results.sizes) {
    cube.x.push_back(static_cast<double>(result.size)), cube.y.push_back(result.floor_cube[parameter]);
    box.x.push_back(static_cast<double>(result.size)), box.y.push_back(result.floor_box[parameter]);
  }
  // The published slope, for other sizes and another box, starting at the smallest cubes.
  plot::Series claim{.label = label("slope as published"), .colour = plot::Colour{0.72, 0.58, 0.10}};
  for (const auto& result : results.sizes)
    claim.x.push_back(static_cast<double>(result.size)), claim.y.push_back(published_slope(results, result.size, parameter));
  lines.series.push_back(std::move(box)), lines.series.push_back(std::move(cube)), lines.series.push_back(std::move(claim));
  for (auto& mark : marks) lines.series.push_back(std::move(mark));
  return lines;
}

}  // namespace

SizeResult evaluate(std::int64_t size, std::int64_t box, double cell, std::span<const std::vector<CubePrediction>> trainings,
                    const std::vector<CubePrediction>& regression, std::uint64_t seed) {
  SizeResult result{.size = size, .scores = score(trainings, seed), .regression = score({&regression, 1}, seed)};
  require(result.scores.universes == result.regression.universes && result.scores.cubes == result.regression.cubes,
          "[sample_size] networks and regression predict the same cubes, got {} of {} universes and {} of {}",
          result.scores.cubes, result.scores.universes, result.regression.cubes, result.regression.universes);
  result.cubes = result.scores.cubes / result.scores.universes;
  require(result.cubes * result.scores.universes == result.scores.cubes,
          "[sample_size] universes have as many cubes each, got {} cubes of {} universes", result.scores.cubes,
          result.scores.universes);
  result.floor_cube = floor_variance(size, cell);
  result.floor_box = size == box ? result.floor_cube : floor_variance(box, cell);
  return result;
}

std::string table(const Results& results) {
  auto text = fmt::format(
      "MSE: mean squared error of u in [-1, 1] over the prior's variance; RMSE: its square root; 1 is what answering 0 has.\n"
      "P(k): ridge regression on power spectra and one-point numbers of the same cubes. Boxes of {}^3 cells of {} Mpc/h.\n"
      "In brackets 2.5th to 97.5th percentile, universes drawn anew; spread: standard deviation between trainings.\n"
      "Training: the errors of one cube of the universes that the network, or the regression, was fitted to.\n"
      "Published (arXiv:2007.12856), of other data: an order of magnitude, taken as a factor {} of MSE, from {}^3 to {}^3; that "
      "slope from the smallest cubes on.\n",
      results.box, results.cell, published.factor, published.from, published.to);
  constexpr auto row = "{:<8} {:>5} {:>5}  {:<24} {:>6} {:>6}  {:>7} {:>6}  {:<24} {:<24} {:>8} {:>6} {:>9}\n";
  const auto cell = [](const Score& s) { return fmt::format("{:.4f} [{:.4f}, {:.4f}]", s.error, s.wide.low, s.wide.high); };
  for (std::size_t p = 0; p < 4; ++p) {
    text += fmt::format("\n{}\n", universe::parameter_names[p]);
    text += fmt::format(row, "", "cells", "cubes", "MSE of one cube", "RMSE", "spread", "training", "",
                        "MSE, average of universe", "MSE, average scaled", "floor of", "of", "published");
    text += fmt::format(row, "", "", "", "", "", "of MSE", "MSE", "RMSE", "", "", "cube", "box", "slope");
    for (const auto& estimate : estimates)
      for (const auto& r : results.sizes) {
        const auto& s = r.*estimate.scores;
        const auto& training = r.*estimate.training;
        const auto number = [](bool known, const char* format, double value) {
          return known ? fmt::format(fmt::runtime(format), value) : std::string("-");
        };
        const double mse = training ? training->cube[p].error : 0;
        text +=
            fmt::format(row, estimate.label, r.size, r.cubes, cell(s.cube[p]), fmt::format("{:.3f}", std::sqrt(s.cube[p].error)),
                        number(s.cube[p].of_training.size() > 1, "{:.4f}", s.cube[p].spread),
                        number(training.has_value(), "{:.4f}", mse), number(training.has_value(), "{:.3f}", std::sqrt(mse)),
                        cell(s.average[p]), cell(s.scaled[p]), fmt::format("{:.4f}", r.floor_cube[p]),
                        fmt::format("{:.4f}", r.floor_box[p]), fmt::format("{:.4f}", published_slope(results, r.size, p)));
      }
  }
  return text;
}

std::string csv(const Results& results) {
  std::string text =
      "size,cubes_per_universe,samples,universes,estimate,trainings,parameter,of,mse,rmse,mse_low_68,mse_high_68,mse_low_95,"
      "mse_high_95,mse_spread,r2,floor_cube,floor_box,published_slope\n";
  for (const auto& r : results.sizes)
    for (const auto& estimate : estimates) {
      const auto lines = [&](const char* samples, const Scores& scores) {
        for (std::size_t p = 0; p < 4; ++p)
          for (const auto& kind : kinds) {
            const auto& s = (scores.*kind.scores)[p];
            text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", r.size, r.cubes, samples,
                                scores.universes, estimate.name, s.of_training.size(), universe::parameter_names[p], kind.name,
                                s.error, std::sqrt(s.error), s.central.low, s.central.high, s.wide.low, s.wide.high, s.spread,
                                s.r2, r.floor_cube[p], r.floor_box[p], published_slope(results, r.size, p));
          }
      };
      lines("test", r.*estimate.scores);
      if (const auto& training = r.*estimate.training) lines("training", *training);
    }
  return text;
}

Json to_json(const Results& results) {
  Json document{{"box", results.box},
                {"cell_mpc_h", results.cell},
                {"mse_unit", "prior variance of u in [-1, 1]"},
                {"published",
                 {{"from", published.from}, {"to", published.to}, {"factor", published.factor}, {"source", "arXiv:2007.12856"}}}};
  auto& sizes = document["sizes"] = Json::array();
  for (const auto& r : results.sizes) {
    Json entry{{"size", r.size}, {"cubes_per_universe", r.cubes}, {"universes", r.scores.universes}};
    for (std::size_t p = 0; p < 4; ++p) {
      auto& parameter = entry["parameters"][universe::parameter_names[p]];
      for (const auto& kind : kinds) {
        parameter[kind.name] = to_json((r.scores.*kind.scores)[p]);
        parameter["regression"][kind.name] = to_json((r.regression.*kind.scores)[p]);
        if (r.training) parameter["training"][kind.name] = to_json(((*r.training).*kind.scores)[p]);
        if (r.regression_training)
          parameter["regression"]["training"][kind.name] = to_json(((*r.regression_training).*kind.scores)[p]);
      }
      parameter["floor_cube"] = r.floor_cube[p], parameter["floor_box"] = r.floor_box[p];
    }
    sizes.push_back(std::move(entry));
  }
  if (results.sizes.size() < 2) return document;
  for (const auto& finding : find(results)) document["findings"][finding.name] = to_json(finding);
  document["sentences"] = sentences(results);
  return document;
}

void draw(const Results& results, const std::filesystem::path& path, bool overwrite) {
  plot::Figure figure("Error against the size of a sample");
  // Colours have the same meaning everywhere; the legend goes to the panel where curves fall most and leave a corner free.
  std::size_t steepest = 0;
  double most = 0;
  for (std::size_t p = 0; p < 4 && !results.sizes.empty(); ++p) {
    const double fall = results.sizes.front().scores.cube[p].error / results.sizes.back().scores.cube[p].error;
    if (fall > most) steepest = p, most = fall;
  }
  const auto of = [&](std::size_t p) { return panel(results, p, p == steepest); };
  figure.row(430, {of(0), of(1)});
  figure.row(430, {of(2), of(3)});
  figure.save(path, overwrite);
}

std::string write_report(const Results& results, const std::filesystem::path& folder) {
  trainer::write_text(folder / report_files[0], csv(results));
  trainer::write_text(folder / report_files[1], tool::to_text(to_json(results)) + "\n");
  draw(results, folder / report_files[2], true);
  auto text = table(results);
  if (results.sizes.size() < 2) return text;
  for (const auto& sentence : sentences(results)) text += fmt::format("\n{}\n", sentence);
  return text;
}

}  // namespace mpigrad::sample_size
