#include <algorithm>

#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/segmentation/parts.h"
#include "models/trainer/slices.h"

namespace mpigrad::trainer::segmenting {
namespace {

// A slice in grey with the outlines of the classes, which follow the edges of cells: prediction solid, truth dashed.
plot::Image slice(const std::vector<double>& values, const Segmented& s, const Shape& extents, std::int64_t plane,
                  std::int64_t classes, const std::string& title) {
  plot::Image image{.title = title, .rows = extents[1], .columns = extents[2]};
  double low = values.front(), high = low;
  for (const double value : values) low = std::min(low, value), high = std::max(high, value);
  for (const double value : values) {
    const double grey = high > low ? (value - low) / (high - low) : 0;
    image.pixels.push_back({grey, grey, grey});
  }
  for (std::int64_t c = 1; c < classes; ++c) {
    const auto add = [&](const std::vector<std::int32_t>& labels, bool dashed) {
      plot::Outline outline{.colour = plot::series_colour(static_cast<std::size_t>(c - 1)), .dashed = dashed, .mask = {}};
      const auto first = labels.begin() + plane * extents[1] * extents[2];
      for (auto at = first; at != first + extents[1] * extents[2]; ++at) outline.mask.push_back(*at == c);
      image.outlines.push_back(std::move(outline));
    };
    if (!s.truth.empty()) add(s.truth, true);
    add(s.predicted, false);
  }
  return image;
}

// The plane with the most cells of classes other than 0.
std::int64_t fullest_plane(const Segmented& s, const Shape& extents) {
  const auto& labels = s.truth.empty() ? s.predicted : s.truth;
  std::int64_t best = extents[0] / 2, most = 0;
  for (std::int64_t d = 0; d < extents[0]; ++d) {
    const auto begin = labels.begin() + d * extents[1] * extents[2];
    const auto cells = std::count_if(begin, begin + extents[1] * extents[2], [](std::int32_t label) { return label > 0; });
    if (cells > most) best = d, most = cells;
  }
  return best;
}

// The values of a plane as stored.
std::vector<double> plane_of(const data::Source& source, std::int64_t sample, const Shape& extents, std::int64_t plane) {
  std::vector<double> all;
  auto channels = static_cast<std::size_t>(source.channels());
  if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source)) {
    const auto volume = data::volume_format_of(folder->image(sample)).read_values(folder->image(sample));
    const auto numbers = extents[1] * extents[2] * volume.header.channels;  // of a plane; a file may hold one channel of several
    const auto begin = volume.values.begin() + plane * numbers;
    all.assign(begin, begin + numbers);
    channels = static_cast<std::size_t>(volume.header.channels);
  } else {
    all = source.values(sample, {{plane, 0, 0}, {plane + 1, extents[1], extents[2]}});
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < all.size(); i += channels) values.push_back(all[i]);
  return values;
}

}  // namespace

void draw(const std::filesystem::path& path, const Results& r, const Volumes& volumes) {
  constexpr int height = 380;
  plot::Figure figure("Segmentation: prediction solid, truth dashed");
  std::vector<plot::Panel> slices;
  for (const auto& s : r.shown) {
    auto extents = volumes.stored->extents_of(s.sample);
    if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get()))
      extents = folder->header(s.sample).extents;
    const auto plane = fullest_plane(s, extents);
    slices.emplace_back(slice(
        plane_of(*volumes.stored, s.sample, extents, plane), s, extents, plane, r.classes,
        fmt::format("{}, plane {}", std::filesystem::path(volumes.stored->name_of_sample(s.sample)).filename().string(), plane)));
  }
  if (!slices.empty()) figure.row(height, std::move(slices));

  std::vector<plot::Panel> panels;
  plot::Scatter scatter{.title = "volumes in mm^3", .x_label = "true", .y_label = "predicted", .series = {}, .notes = {}};
  for (std::size_t c = 1; c < static_cast<std::size_t>(r.classes) && c <= 8; ++c) {
    plot::Series points{
        .label = fmt::format("class {}: Dice {:.3f}", c, mean_of(r.cases, &Case::dice, c).value), .x = {}, .y = {}};
    for (const auto& each : r.cases) points.x.push_back(each.truth[c]), points.y.push_back(each.predicted[c]);
    scatter.series.push_back(std::move(points));
  }
  panels.emplace_back(std::move(scatter));
  if (!r.epochs.empty()) {
    plot::Lines dice{.title = "Dice of the validation volumes", .x_label = "epoch", .markers = true, .series = {}};
    for (std::size_t c = 0; c + 1 < static_cast<std::size_t>(r.classes) && c < 8; ++c)
      dice.series.push_back(curve(fmt::format("class {}", c + 1), r.epochs, [c](const Epoch& e) { return e.dice[c]; }));
    panels.emplace_back(
        plot::Lines{.title = "loss",
                    .x_label = "epoch",
                    .markers = true,
                    .series = {curve("training", r.epochs, [](const Epoch& e) { return e.train_loss; }),
                               curve("1 - Dice of validation", r.epochs, [](const Epoch& e) { return e.validation; })}});
    panels.emplace_back(std::move(dice));
  }
  figure.row(height, std::move(panels));
  figure.save(path, true);
}

}  // namespace mpigrad::trainer::segmenting
