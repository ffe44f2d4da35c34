#include "examples/trainers/contact_maps/scores.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "models/train/ridge.h"

namespace mpigrad::contacts {

ContactScore contact_score(const Predictions& predictions, std::int64_t side) {
  const auto s = static_cast<std::size_t>(side), width = static_cast<std::size_t>(predictions.outputs);
  const auto near = static_cast<std::size_t>(nearest_counted);
  double exist = 0, predicted = 0, both = 0, equal = 0, cells = 0, all = 0, all_found = 0;
  for (std::size_t i = 0; i < predictions.samples.size(); ++i)
    for (std::size_t row = 0; row < s; ++row)
      for (std::size_t column = 0; column < s; ++column) {
        const bool is = predictions.truth[(i * s + row) * s + column] > 0.5;
        const bool says = predictions.predicted[i * width + row * s + column] > 0;
        equal += is == says, cells += 1, all += is, all_found += is && says;
        if (column < row + near) continue;  // each pair once
        exist += is, predicted += says, both += is && says;
      }
  const auto share = [](double part, double of) { return of > 0 ? part / of : std::numeric_limits<double>::quiet_NaN(); };
  return {.found = share(both, exist),
          .right = share(both, predicted),
          .all_found = share(all_found, all),
          .cells = share(equal, cells)};
}

std::vector<double> latent_means(const Predictions& predictions, std::int64_t latent) {
  const auto width = static_cast<std::size_t>(predictions.outputs), n = static_cast<std::size_t>(latent);
  std::vector<double> means;
  for (std::size_t i = 0; i < predictions.samples.size(); ++i)
    for (std::size_t k = 0; k < n; ++k) means.push_back(predictions.predicted[(i + 1) * width - 2 * n + k]);
  return means;
}

double linear_r2(std::span<const double> training_latent, std::span<const double> training, std::span<const double> kept_latent,
                 std::span<const double> kept) {
  const auto fit = fit_ridge(training_latent, training, std::ssize(training));
  const auto predicted = fit(kept_latent);
  const double mean = std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size());
  double errors = 0, all = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    errors += (predicted[i] - kept[i]) * (predicted[i] - kept[i]);
    all += (kept[i] - mean) * (kept[i] - mean);
  }
  return all > 0 ? 1 - errors / all : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace mpigrad::contacts
