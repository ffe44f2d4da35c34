// The picture of a command: samples, curves, and predictions against targets.

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/train/metrics.h"
#include "models/trainer/program/program.h"
#include "models/trainer/slices.h"

namespace mpigrad::trainer::program {
namespace {

constexpr int height = 320;
constexpr std::size_t most = 4;  // panels in a row

struct Point {
  std::int64_t epoch;
  const EpochRow* row;
};

// Training and kept loss, accuracy and AUC for classes, and each of the program's metrics.
std::vector<plot::Panel> curves(const Program& program, const Findings& f) {
  std::vector<Point> points;
  for (const auto& row : f.epochs) points.push_back({row.report.epoch, &row});
  const auto value = [&](const std::string& label, std::size_t i) {
    return curve(label, points, [i](const Point& p) { return p.row->values[i]; });
  };
  const bool positive = std::all_of(f.epochs.begin(), f.epochs.end(), [](const EpochRow& row) { return row.values.front() > 0; });
  std::vector<plot::Panel> panels{plot::Lines{
      .title = "loss",
      .x_label = "epoch",
      .y_label = "loss",
      .log_y = !f.problem.classes && positive,
      .markers = true,
      .series = {curve("training", points, [](const Point& p) { return p.row->report.loss; }), value(program.kept.name, 0)}}};
  const auto names = value_names(program, f.problem);
  if (f.problem.classes)
    panels.emplace_back(
        plot::Lines{.title = program.kept.name,
                    .x_label = "epoch",
                    .markers = true,
                    .series = {value("AUC", place_of(names, "auc")), value("accuracy", place_of(names, "accuracy"))}});
  for (std::size_t i = 0; i < program.metrics.size() && panels.size() < most; ++i)
    panels.emplace_back(
        plot::Lines{.title = program.metrics[i].name, .x_label = "epoch", .markers = true, .series = {value("", i + 1)}});
  return panels;
}

// The ROC curve: true positives against false positives, from the highest score down.
plot::Series characteristic(const Findings& f, double auc) {
  const auto& p = f.predictions;
  std::vector<std::size_t> order(p.samples.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::size_t i) { return p.predicted[2 * i + 1] - p.predicted[2 * i]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score(a) > score(b); });
  const auto positives = static_cast<double>(std::count(p.truth.begin(), p.truth.end(), 1));
  const double negatives = static_cast<double>(p.truth.size()) - positives;
  plot::Series series{.label = fmt::format("AUC {:.3f}", auc), .x = {0}, .y = {0}};
  double hits = 0, alarms = 0;
  for (const auto i : order) {
    (p.truth[i] == 1 ? hits : alarms) += 1;
    series.x.push_back(alarms / std::max(1.0, negatives)), series.y.push_back(hits / std::max(1.0, positives));
  }
  return series;
}

// Rows of the first samples with their predictions.
void draw_samples(plot::Figure& figure, const Program& program, const Findings& f, std::size_t count, std::size_t in_row,
                  const std::function<std::string(std::size_t)>& title) {
  std::vector<plot::Panel> row;
  const auto shown = std::min(count, f.predictions.samples.size());
  for (std::size_t i = 0; i < shown; ++i) {
    row.emplace_back(slice(*f.source, f.predictions.samples[i], 0, title(i), program.transform));
    if (row.size() == in_row || i + 1 == shown) figure.row(height, std::exchange(row, {}));
  }
}

// The first sample's channels in a row, by their names.
void draw_channels(plot::Figure& figure, const Program& program, const Findings& f) {
  const auto& names = f.source->sample_type().channel_names;
  const bool logarithm = program.transform == data::Transform::log1p || f.source->transform() == data::Transform::log1p;
  std::vector<plot::Panel> row;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(f.source->channels(), most); ++c) {
    const auto name = names.empty() ? fmt::format("channel {}", c + 1) : names[static_cast<std::size_t>(c)];
    row.emplace_back(
        slice(*f.source, f.predictions.samples.front(), c, (logarithm ? "log(1 + count), " : "") + name, program.transform));
  }
  figure.row(height, std::move(row));
}

void draw_classes(plot::Figure& figure, const Program& program, const Findings& f) {
  const auto& p = f.problem;
  const auto predicted = argmax_rows(f.predictions.predicted, p.outputs);
  if (!f.scored) {
    const auto parts = probabilities(f);
    return draw_samples(figure, program, f, 2 * most, most, [&](std::size_t i) {
      const auto at = i * static_cast<std::size_t>(p.outputs) + static_cast<std::size_t>(predicted[i]);
      return fmt::format("class {}: {:.3f}", p.class_name(predicted[i]), parts[at]);
    });
  }
  // Samples of each of the first classes.
  std::vector<plot::Panel> slices;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(p.outputs, most); ++c)
    for (std::size_t i = 0, found = 0; i < predicted.size() && found < (p.outputs == 2 ? 2 : 1); ++i)
      if (static_cast<std::int64_t>(f.predictions.truth[i]) == c)
        ++found, slices.emplace_back(slice(*f.source, f.predictions.samples[i], 0,
                                           fmt::format("class {}, predicted {}", p.class_name(c), p.class_name(predicted[i])),
                                           program.transform));
  if (!slices.empty()) figure.row(height, std::move(slices));
  std::vector<plot::Panel> panels;
  if (p.outputs == 2)
    panels.emplace_back(plot::Lines{.title = "receiver operating characteristic",
                                    .x_label = "false positives",
                                    .y_label = "true positives",
                                    .series = {characteristic(f, f.values[place_of(value_names(program, p), "auc")]),
                                               {.label = "chance", .x = {0, 1}, .y = {0, 1}}}});
  if (!f.epochs.empty())
    for (auto& panel : curves(program, f)) panels.push_back(std::move(panel));
  if (!panels.empty()) figure.row(height, std::move(panels));
}

void draw_numbers(plot::Figure& figure, const Program& program, const Findings& f) {
  const auto width = f.problem.targets.size();
  const bool channels = f.scored && f.source->channels() > 1 && !f.predictions.samples.empty();
  if (channels) draw_channels(figure, program, f);
  if (!channels)
    draw_samples(figure, program, f, most, 2, [&](std::size_t i) {
      std::string title;
      for (std::size_t t = 0; t < std::min(width, most); ++t) {
        double value = f.predictions.predicted[i * width + t];
        if (f.physical()) value = f.means->offset[t] + f.means->scale[t] * value;
        title += fmt::format("{}{} {:.3g}", t == 0 ? "" : ", ", f.problem.targets[t], value);
      }
      return title;
    });
  if (!f.scored) return;
  std::vector<plot::Panel> panels;
  for (std::size_t t = 0; t < std::min(width, most); ++t) {
    const auto points = [&](const std::vector<double>& predicted) {
      plot::Series series;
      for (auto i = t; i < predicted.size(); i += width)
        series.x.push_back(f.predictions.truth[i]), series.y.push_back(predicted[i]);
      return series;
    };
    plot::Scatter scatter{.title = f.problem.targets[t],
                          .x_label = "true",
                          .y_label = "predicted",
                          .series = {points(f.predictions.predicted)},
                          .notes = {fmt::format("R2 {:.3f}", r2_of(f.scores[t]))}};
    if (!f.reference_mse.empty()) {
      scatter.series.push_back(points(f.reference.values));
      scatter.notes.push_back(fmt::format("MSE / of mean: {:.3f}", f.scores[t].mse / f.against_mean[t].mean_mse));
      scatter.notes.push_back(
          fmt::format("of {}: {:.3f}", program.reference->label, f.reference_mse[t] / f.against_mean[t].mean_mse));
      // One legend for the row.
      if (t == 0) scatter.series[0].label = "network", scatter.series[1].label = program.reference->label;
    }
    panels.emplace_back(std::move(scatter));
  }
  figure.row(height, std::move(panels));
  if (!f.epochs.empty()) figure.row(height, curves(program, f));
}

}  // namespace

void draw(const std::filesystem::path& path, const Program& program, const Findings& f) {
  if (!plot::available()) return;
  plot::Figure figure(program.name);
  if (f.problem.classes) draw_classes(figure, program, f);
  else draw_numbers(figure, program, f);
  if (program.draw) {
    Results results{
        .problem = f.problem, .predictions = f.predictions, .source = *f.source, .scored = f.scored, .epochs = f.epochs};
    const auto names = value_names(program, f.problem);
    for (std::size_t i = 0; i < f.values.size(); ++i) results.values[names[i]] = f.values[i];
    program.draw(figure, results);
  }
  figure.save(path, true);
}

}  // namespace mpigrad::trainer::program
