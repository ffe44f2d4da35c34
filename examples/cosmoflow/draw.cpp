#include <algorithm>

#include "examples/cosmoflow/cosmoflow.h"
#include "examples/trainer/slices.h"

namespace mpigrad::cosmoflow {

void draw(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  constexpr int height = 320;
  plot::Figure figure("CosmoFlow");
  const auto sample = r.predictions.samples.front();
  std::vector<plot::Panel> slices;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(4, source.channels()); ++c)
    slices.emplace_back(trainer::slice(source, sample, c, fmt::format("log(1 + counts), channel {}", c + 1)));
  figure.row(height, std::move(slices));

  std::vector<plot::Panel> scatters;
  const auto n = r.names.size();
  for (std::size_t t = 0; t < n; ++t) {
    plot::Series points;
    for (std::size_t i = t; i < r.predictions.truth.size(); i += n)
      points.x.push_back(r.predictions.truth[i]), points.y.push_back(r.predictions.predicted[i]);
    scatters.emplace_back(
        plot::Scatter{.title = r.names[t],
                      .x_label = "true",
                      .y_label = "predicted",
                      .series = {std::move(points)},
                      .notes = {fmt::format("MSE / of mean = {:.3f}", r.scores[t].mse / r.scores[t].mean_mse)}});
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
