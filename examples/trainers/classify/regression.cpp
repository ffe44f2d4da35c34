// Numbers in place of classes: their units, scores and tables.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "examples/trainers/classify/classify.h"
#include "framework/base/joined.h"
#include "models/trainer/slices.h"

namespace mpigrad::classify {

void describe_targets(Recipe& recipe, const trainer::TargetRows& rows) {
  const auto width = rows.names.size(), n = rows.values.size() / width;
  recipe.targets = rows.names;
  recipe.means.assign(width, 0), recipe.deviations.assign(width, 0);
  for (std::size_t i = 0; i < rows.values.size(); ++i) recipe.means[i % width] += rows.values[i] / static_cast<double>(n);
  for (std::size_t i = 0; i < rows.values.size(); ++i)
    recipe.deviations[i % width] += std::pow(rows.values[i] - recipe.means[i % width], 2) / static_cast<double>(n);
  for (std::size_t t = 0; t < width; ++t) {
    auto& deviation = recipe.deviations[t];
    deviation = std::sqrt(deviation);
    if (!(deviation > 1e-12 * std::abs(recipe.means[t]))) deviation = 1;
  }
}

trainer::TargetRows standardised(const trainer::TargetRows& rows, const Recipe& recipe, const std::string& label) {
  const auto names = label.empty() ? recipe.targets : std::vector<std::string>{label};
  require(names.size() == recipe.targets.size(), "[data] --label {} is one target, the weights predict {}", label,
          recipe.targets.size());
  std::vector<std::size_t> from;
  for (const auto& name : names) {
    auto found = std::find(rows.names.begin(), rows.names.end(), name);
    if (label.empty() && names.size() == 1 && rows.names.size() == 1) found = rows.names.begin();
    require(found != rows.names.end(), "[data] there is no target '{}', but {}", name,
            rows.names.empty() ? "none" : joined(rows.names, ", "));
    from.push_back(static_cast<std::size_t>(found - rows.names.begin()));
  }
  trainer::TargetRows result{.names = recipe.targets};
  for (std::size_t row = 0; row < rows.values.size(); row += rows.names.size())
    for (std::size_t t = 0; t < from.size(); ++t)
      result.values.push_back((rows.values[row + from[t]] - recipe.means[t]) / recipe.deviations[t]);
  return result;
}

void restore_units(const Recipe& recipe, std::vector<double>& values) {
  if (!recipe.regression()) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto t = i % recipe.targets.size();
    values[i] = recipe.means[t] + recipe.deviations[t] * values[i];
  }
}

double r2_of(const RegressionScore& s) { return s.mean_mse > 0 ? 1 - s.mse / s.mean_mse : std::nan(""); }

Score score_targets(Results& r, const Recipe& recipe) {
  Score result;
  RunningMean loss, r2;
  auto &predicted = r.predictions.predicted, &truth = r.predictions.truth;
  for (std::size_t i = 0; i < predicted.size(); ++i) loss.add(std::pow(predicted[i] - truth[i], 2));
  result.loss = loss.mean();
  restore_units(recipe, predicted), restore_units(recipe, truth);
  r.regression = regression_scores(predicted, truth, recipe.outputs());
  for (const auto& each : r.regression) r2.add(r2_of(each));
  result.r2 = r2.mean();
  return result;
}

void write_targets(const std::filesystem::path& path, const Results& r, const Recipe& recipe, const data::Source& source) {
  std::vector<std::string> columns{"sample"};
  for (const auto& name : recipe.targets) {
    if (r.scored()) columns.push_back(name + "_true");
    columns.push_back(name + "_predicted");
  }
  CsvWriter csv(path, columns, true);
  const auto width = recipe.targets.size();
  for (std::size_t i = 0; i < r.predictions.samples.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i])};
    for (std::size_t t = i * width; t < (i + 1) * width; ++t) {
      if (r.scored()) row.emplace_back(r.predictions.truth[t]);
      row.emplace_back(r.predictions.predicted[t]);
    }
    csv.row(row);
  }
}

void print_targets(const Results& r, const Recipe& recipe, const data::Source& source) {
  const auto width = recipe.targets.size(), samples = r.predictions.samples.size();
  if (r.scored()) {
    fmt::print("\n{:<16} {:>11} {:>11} {:>11} {:>8}   on {} samples\n", "target", "MSE", "RMSE", "MAE", "R2", samples);
    for (std::size_t t = 0; t < width; ++t) {
      const auto& s = r.regression[t];
      fmt::print("{:<16} {:>11.4g} {:>11.4g} {:>11.4g} {:>8.3f}\n", recipe.targets[t], s.mse, std::sqrt(s.mse), s.mae, r2_of(s));
    }
    return;
  }
  fmt::print("\n");
  for (const auto& name : recipe.targets) fmt::print("{:>11} ", name);
  fmt::print("  predicted\n");
  for (std::size_t i = 0; i < std::min(samples, trainer::most_rows); ++i) {
    for (std::size_t t = i * width; t < (i + 1) * width; ++t) fmt::print("{:>11.4g} ", r.predictions.predicted[t]);
    fmt::print("  {}\n", std::filesystem::path(source.name_of_sample(r.predictions.samples[i])).filename().string());
  }
  if (samples > trainer::most_rows) fmt::print("and {} more in {}\n", samples - trainer::most_rows, predictions_file);
}

nlohmann::ordered_json targets_json(const Results& r, const Recipe& recipe) {
  auto document = nlohmann::ordered_json::object();
  const auto number = [](double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); };
  for (std::size_t t = 0; t < recipe.targets.size(); ++t) {
    auto& target =
        document[recipe.targets[t]] = {{"training_mean", recipe.means[t]}, {"training_deviation", recipe.deviations[t]}};
    if (!r.scored()) continue;
    const auto& s = r.regression[t];
    target.update(
        {{"mse", s.mse}, {"rmse", std::sqrt(s.mse)}, {"mae", s.mae}, {"r2", number(r2_of(s))}, {"correlation", s.correlation}});
  }
  return document;
}

void draw_targets(const std::filesystem::path& path, const Results& r, const Recipe& recipe, const data::Source& source) {
  constexpr int height = 320;
  constexpr std::size_t most = 4;
  plot::Figure figure("Regression");
  const auto width = recipe.targets.size(), shown = std::min(width, most);
  std::vector<plot::Panel> slices;
  for (std::size_t i = 0; i < std::min(r.predictions.samples.size(), most); ++i) {
    std::string title;
    for (std::size_t t = 0; t < shown; ++t)
      title += fmt::format("{}{} {:.3g}", t == 0 ? "" : ", ", recipe.targets[t], r.predictions.predicted[i * width + t]);
    slices.emplace_back(trainer::slice(source, r.predictions.samples[i], 0, title));
    if (slices.size() == 2 || i + 1 == std::min(r.predictions.samples.size(), most))
      figure.row(height, std::exchange(slices, {}));
  }
  if (!r.scored()) return figure.save(path, true);
  std::vector<plot::Panel> panels;
  for (std::size_t t = 0; t < shown; ++t) {
    plot::Series points;
    for (std::size_t i = t; i < r.predictions.predicted.size(); i += width)
      points.x.push_back(r.predictions.truth[i]), points.y.push_back(r.predictions.predicted[i]);
    panels.emplace_back(plot::Scatter{.title = recipe.targets[t],
                                      .x_label = "true",
                                      .y_label = "predicted",
                                      .series = {std::move(points)},
                                      .notes = {fmt::format("R2 {:.3f}", r2_of(r.regression[t]))}});
  }
  figure.row(height, std::move(panels));
  if (!r.epochs.empty()) {
    std::vector<plot::Panel> curves;
    curves.emplace_back(
        plot::Lines{.title = "mean squared error, in units of the deviation",
                    .x_label = "epoch",
                    .markers = true,
                    .series = {trainer::curve("training", r.epochs, [](const Epoch& e) { return e.train_loss; }),
                               trainer::curve("validation", r.epochs, [](const Epoch& e) { return e.validation.loss; })}});
    figure.row(height, std::move(curves));
  }
  figure.save(path, true);
}

}  // namespace mpigrad::classify
