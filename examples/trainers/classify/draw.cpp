#include <algorithm>
#include <numeric>
#include <utility>

#include "examples/trainers/classify/classify.h"
#include "models/trainer/slices.h"

namespace mpigrad::classify {
namespace {

// True positives against false positives, from the highest score down.
plot::Series characteristic(const Results& r) {
  std::vector<std::size_t> order(r.labels.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::size_t i) { return r.predictions.predicted[2 * i + 1] - r.predictions.predicted[2 * i]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score(a) > score(b); });
  const auto positives = static_cast<double>(std::count(r.labels.begin(), r.labels.end(), 1));
  const double negatives = static_cast<double>(r.labels.size()) - positives;
  plot::Series series{.label = fmt::format("AUC {:.3f}", r.score.auc), .x = {0}, .y = {0}};
  double hits = 0, alarms = 0;
  for (const auto i : order) {
    (r.labels[i] == 1 ? hits : alarms) += 1;
    series.x.push_back(alarms / std::max(1.0, negatives)), series.y.push_back(hits / std::max(1.0, positives));
  }
  return series;
}

}  // namespace

void draw(const std::filesystem::path& path, const Results& r, const Recipe& recipe, const data::Source& source) {
  if (recipe.regression()) return draw_targets(path, r, recipe, source);
  constexpr int height = 320;
  plot::Figure figure("Classification");
  const auto predicted = argmax_rows(r.predictions.predicted, r.classes);
  if (r.labels.empty()) {
    const auto parts = probabilities(r);
    std::vector<plot::Panel> row;
    for (std::size_t i = 0; i < predicted.size() && i < 8; ++i) {
      const auto at = i * static_cast<std::size_t>(r.classes) + static_cast<std::size_t>(predicted[i]);
      row.emplace_back(trainer::slice(source, r.predictions.samples[i], 0,
                                      fmt::format("class {}: {:.3f}", r.name_of(predicted[i]), parts[at])));
      if (row.size() == 4 || i + 1 == std::min<std::size_t>(8, predicted.size())) figure.row(height, std::exchange(row, {}));
    }
    return figure.save(path, true);
  }
  std::vector<plot::Panel> slices;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(r.classes, 4); ++c)
    for (std::size_t i = 0, found = 0; i < r.labels.size() && found < (r.classes == 2 ? 2 : 1); ++i)
      if (r.labels[i] == c)
        ++found,
            slices.emplace_back(trainer::slice(source, r.predictions.samples[i], 0,
                                               fmt::format("class {}, predicted {}", r.name_of(c), r.name_of(predicted[i]))));
  if (!slices.empty()) figure.row(height, std::move(slices));

  std::vector<plot::Panel> panels;
  if (r.classes == 2)
    panels.emplace_back(plot::Lines{.title = "receiver operating characteristic",
                                    .x_label = "false positives",
                                    .y_label = "true positives",
                                    .series = {characteristic(r), {.label = "chance", .x = {0, 1}, .y = {0, 1}}}});
  if (!r.epochs.empty()) {
    panels.emplace_back(
        plot::Lines{.title = "cross-entropy",
                    .x_label = "epoch",
                    .markers = true,
                    .series = {trainer::curve("training", r.epochs, [](const Epoch& e) { return e.train_loss; }),
                               trainer::curve("validation", r.epochs, [](const Epoch& e) { return e.validation.loss; })}});
    panels.emplace_back(
        plot::Lines{.title = "validation",
                    .x_label = "epoch",
                    .markers = true,
                    .series = {trainer::curve("AUC", r.epochs, [](const Epoch& e) { return e.validation.auc; }),
                               trainer::curve("accuracy", r.epochs, [](const Epoch& e) { return e.validation.accuracy; })}});
  }
  if (!panels.empty()) figure.row(height, std::move(panels));
  figure.save(path, true);
}

}  // namespace mpigrad::classify
