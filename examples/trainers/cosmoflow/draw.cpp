#include <algorithm>
#include <utility>

#include "examples/trainers/cosmoflow/cosmoflow.h"
#include "models/trainer/slices.h"

namespace mpigrad::cosmoflow {

namespace {

constexpr int height = 320;

// The first samples with what is predicted of each, two in a row: the text is long.
void draw_predicted(plot::Figure& figure, const Results& r, const data::Source& source) {
  const auto n = r.names.size(), shown = std::min<std::size_t>(4, r.predictions.samples.size());
  std::vector<plot::Panel> row;
  for (std::size_t i = 0; i < shown; ++i) {
    std::string title;
    for (std::size_t t = 0; t < n; ++t) {
      const double value = r.predictions.predicted[i * n + t];
      title +=
          fmt::format("{}{} {:.3g}", t == 0 ? "" : ", ", r.names[t], r.scale.empty() ? value : r.offset[t] + r.scale[t] * value);
    }
    row.emplace_back(trainer::slice(source, r.predictions.samples[i], 0, title, data::Transform::log1p));
    if (row.size() == 2 || i + 1 == shown) figure.row(height, std::exchange(row, {}));
  }
}

}  // namespace

void draw(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  plot::Figure figure("CosmoFlow");
  if (r.scores.empty()) {
    draw_predicted(figure, r, source);
    return figure.save(path, true);
  }
  const auto sample = r.predictions.samples.front();
  std::vector<plot::Panel> slices;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(4, source.channels()); ++c)
    slices.emplace_back(
        trainer::slice(source, sample, c, fmt::format("log(1 + counts), channel {}", c + 1), data::Transform::log1p));
  figure.row(height, std::move(slices));

  std::vector<plot::Panel> scatters;
  const auto n = r.names.size();
  for (std::size_t t = 0; t < n; ++t) {
    const auto points = [&](const std::vector<double>& predicted) {
      plot::Series series;
      for (std::size_t i = t; i < predicted.size(); i += n)
        series.x.push_back(r.predictions.truth[i]), series.y.push_back(predicted[i]);
      return series;
    };
    const double of_mean = r.scores[t].mean_mse;
    plot::Scatter scatter{.title = r.names[t],
                          .x_label = "true",
                          .y_label = "predicted",
                          .series = {points(r.predictions.predicted)},
                          .notes = {fmt::format("MSE / of mean: {:.3f}", r.scores[t].mse / of_mean)}};
    if (!r.spectrum_mse.empty()) {
      scatter.series.push_back(points(r.spectrum.values));
      scatter.notes.push_back(fmt::format("of P(k): {:.3f}", r.spectrum_mse[t] / of_mean));
      // One legend for the row.
      if (t == 0) scatter.series[0].label = "network", scatter.series[1].label = "P(k)";
    }
    scatters.emplace_back(std::move(scatter));
  }
  figure.row(height, std::move(scatters));

  if (!r.epochs.empty())
    figure.row(height, {plot::Lines{.title = "mean squared error",
                                    .x_label = "epoch",
                                    .log_y = true,
                                    .markers = true,
                                    .series = {trainer::curve("training", r.epochs, [](const Epoch& e) { return e.train_loss; }),
                                               trainer::curve("test", r.epochs, [](const Epoch& e) { return e.test_loss; })}}});
  figure.save(path, true);
}

}  // namespace mpigrad::cosmoflow
