#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "framework/tensor/random.h"
#include "models/evaluate/embeddings.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/evaluation.h"
#include "models/trainer/run.h"
#include "models/trainer/slices.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

constexpr std::int64_t queries = 8, shown = 8;
constexpr std::size_t colours = 10;  // classes with distinct colours in the projection

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
void normalise(std::vector<double>& v) {
  const double norm = std::sqrt(dot(v, v));
  for (auto& x : v) x /= norm > 0 ? norm : 1;
}

std::vector<plot::Series> clouds(const std::vector<double>& plane, const std::vector<std::int64_t>& labels, std::size_t n) {
  std::map<std::int64_t, std::size_t> counts;
  for (const auto label : labels) ++counts[label];
  // Only the most frequent classes get colours of their own.
  std::vector<std::pair<std::size_t, std::int64_t>> order;
  for (const auto& [label, count] : counts) order.emplace_back(count, label);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  if (order.size() > colours) order.resize(colours);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  // Samples of all other classes are drawn first, below the rest.
  std::vector<plot::Series> series{
      {.label = labels.empty() || counts.size() == order.size() ? "" : "others", .colour = plot::Colour{0.78, 0.78, 0.8}}};
  std::map<std::int64_t, std::size_t> places;
  for (const auto& [count, label] : order) {
    const auto k = places.size();
    places[label] = series.size();
    series.push_back({.label = fmt::format("{}", label),
                      .colour = plot::from_lightness_chroma_hue(
                          k % 2 == 0 ? 0.5 : 0.68, 0.15, 360.0 * static_cast<double>(k) / static_cast<double>(order.size()))});
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto found = labels.empty() ? places.end() : places.find(labels[i]);
    auto& into = found == places.end() ? series[0] : series[found->second];
    into.x.push_back(plane[2 * i]), into.y.push_back(plane[2 * i + 1]);
  }
  return series;
}

}  // namespace

std::vector<double> principal_plane(const Tensor& z) {
  const auto n = static_cast<std::size_t>(z.dim(0)), width = static_cast<std::size_t>(z.dim(1));
  auto rows = z.to_vector();
  for (std::size_t j = 0; j < width; ++j) {
    double mean = 0;
    for (std::size_t i = 0; i < n; ++i) mean += rows[i * width + j] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) rows[i * width + j] -= mean;
  }
  std::vector<std::vector<double>> axes;
  for (std::uint64_t axis = 0; axis < 2; ++axis) {
    std::vector<double> v(width), next(width);
    for (std::size_t j = 0; j < width; ++j) v[j] = Philox{1, axis}.normal(j);
    for (int iteration = 0; iteration < 100; ++iteration) {
      for (const auto& earlier : axes) {
        const double along = dot(v, earlier);
        for (std::size_t j = 0; j < width; ++j) v[j] -= along * earlier[j];
      }
      normalise(v);
      std::fill(next.begin(), next.end(), 0);
      for (std::size_t i = 0; i < n; ++i) {
        const double* row = rows.data() + i * width;
        const double score = std::inner_product(row, row + width, v.begin(), 0.0);
        for (std::size_t j = 0; j < width; ++j) next[j] += score * row[j];
      }
      const double change = std::abs(1 - std::abs(dot(v, next)) / std::max(1e-300, std::sqrt(dot(next, next))));
      v = next;
      if (change < 1e-10) break;
    }
    for (const auto& earlier : axes) {
      const double along = dot(v, earlier);
      for (std::size_t j = 0; j < width; ++j) v[j] -= along * earlier[j];
    }
    normalise(v);
    axes.push_back(v);
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i)
    for (const auto& axis : axes) result.push_back(std::inner_product(axis.begin(), axis.end(), rows.data() + i * width, 0.0));
  return result;
}

void draw(const std::filesystem::path& path, const FeatureSet& test, const Communicator& world) {
  UseDevice cpu(DeviceKind::cpu);
  Untaped scope;
  const auto &samples = test.samples, &labels = test.labels;
  const auto& z = test.z;
  const auto n = z.dim(0);
  const auto count = std::min(queries, n);
  std::vector<double> places;
  for (std::int64_t q = 0; q < count; ++q) places.push_back(static_cast<double>((2 * q + 1) * n / (2 * count)));
  const bool first = world.rank() == 0;
  const auto chosen = first ? take(z, from_vector({count}, places, DType::int64)) : slice(z, 0, 0, 0);
  const auto found = contrastive::nearest(constant(chosen), part_of(z, world), world, {.count = std::min(n, shown + 1)});
  trainer::together(world, [&] {
    if (!first) return;
    plot::Figure figure("Test samples and their nearest neighbours; green frames: of the same label", 1200);
    for (std::int64_t q = 0; q < count; ++q) {
      const auto query = static_cast<std::size_t>(places[static_cast<std::size_t>(q)]);
      std::vector<plot::Panel> panels{trainer::picture(*test.source, samples[query])};
      for (std::int64_t k = 0; k < found.count && panels.size() <= static_cast<std::size_t>(shown); ++k) {
        const auto other = static_cast<std::size_t>(found.neighbour[static_cast<std::size_t>(q * found.count + k)]);
        if (other == query) continue;
        auto image = trainer::picture(*test.source, samples[other]);
        if (!labels.empty() && labels[other] == labels[query]) image.frame = plot::Colour{0.1, 0.65, 0.2};
        panels.emplace_back(std::move(image));
      }
      figure.row(130, std::move(panels));
    }
    figure.row(560, {plot::Scatter{.title = "the two principal axes",
                                   .identity = false,
                                   .series = clouds(principal_plane(z), labels, samples.size())}});
    figure.save(path, true);
  });
}

}  // namespace mpigrad::contrast
