#include <algorithm>
#include <cmath>

#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/segmentation/parts.h"
#include "models/trainer/slices.h"

namespace mpigrad::trainer::segmenting {
namespace {

// A slice in grey with the outlines of the classes, which follow the edges of cells: prediction solid, truth dashed.
plot::Image image_of(const std::vector<double>& values, const Slice& s, const std::string& title) {
  plot::Image image{.title = title, .rows = s.extents[0], .columns = s.extents[1]};
  double low = values.front(), high = low;
  for (const double value : values) low = std::min(low, value), high = std::max(high, value);
  for (const double value : values) {
    const double grey = high > low ? (value - low) / (high - low) : 0;
    image.pixels.push_back({grey, grey, grey});
  }
  std::int32_t most = 0;
  for (const auto* labels : {&s.truth, &s.predicted})
    for (const auto label : *labels) most = std::max(most, label);
  for (std::int32_t c = 1; c <= most; ++c) {
    const auto add = [&](const std::vector<std::int32_t>& labels, bool dashed) {
      if (std::find(labels.begin(), labels.end(), c) == labels.end()) return;
      plot::Outline outline{.colour = plot::series_colour(static_cast<std::size_t>(c - 1)), .dashed = dashed, .mask = {}};
      for (const auto label : labels) outline.mask.push_back(label == c);
      image.outlines.push_back(std::move(outline));
    };
    add(s.truth, true);
    add(s.predicted, false);
  }
  return image;
}

std::string name_of(const Results& r, std::size_t label) { return (r.is_region(label) ? "" : "class ") + r.name_of(label); }

// The values of a plane as stored.
std::vector<double> plane_of(const data::Source& source, const Slice& s) {
  std::vector<double> all;
  auto channels = static_cast<std::size_t>(source.channels());
  if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source)) {
    const auto volume = data::volume_format_of(folder->image(s.sample)).read_values(folder->image(s.sample));
    const auto numbers = s.extents.elements() * volume.header.channels;  // of a plane; a file may hold one channel of several
    const auto begin = volume.values.begin() + s.plane * numbers;
    all.assign(begin, begin + numbers);
    channels = static_cast<std::size_t>(volume.header.channels);
  } else {
    all = source.values(s.sample, {{s.plane, 0, 0}, {s.plane + 1, s.extents[0], s.extents[1]}});
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < all.size(); i += channels) values.push_back(all[i]);
  return values;
}

std::vector<plot::Panel> panels_of(const Results& r, const Volumes& volumes, std::size_t first, std::size_t most) {
  std::vector<plot::Panel> panels;
  for (auto i = first; i < std::min(first + most, r.shown.size()); ++i) {
    const auto& s = r.shown[i];
    const auto path = std::filesystem::path(volumes.stored->name_of_sample(s.sample)).filename();
    auto name = data::is_volume(path) ? data::volume_stem(path) : path.string();
    if (constexpr std::size_t most = 22; name.size() > most)
      name = "..." + name.substr(name.size() - most + 3);  // the panel's width
    panels.emplace_back(
        image_of(plane_of(*volumes.stored, s), s,
                 fmt::format("{}, plane {}{}", name, s.plane, std::isnan(s.dice) ? "" : fmt::format(", Dice {:.3f}", s.dice))));
  }
  return panels;
}

constexpr std::size_t in_a_row = 3;
constexpr const char* title = "Worst volumes: prediction solid, truth dashed";

}  // namespace

void draw_slices(const std::filesystem::path& path, const Results& r, const Volumes& volumes) {
  plot::Figure figure(title);
  for (std::size_t first = 0; first < r.shown.size(); first += in_a_row) figure.row(420, panels_of(r, volumes, first, in_a_row));
  figure.save(path, true);
}

void draw(const std::filesystem::path& path, const Results& r, const Volumes& volumes) {
  constexpr int height = 380;
  plot::Figure figure(title);
  if (!r.shown.empty()) figure.row(height, panels_of(r, volumes, 0, in_a_row));

  std::vector<plot::Panel> panels;
  plot::Scatter scatter{.title = "volumes in mm^3", .x_label = "true", .y_label = "predicted", .series = {}, .notes = {}};
  for (std::size_t c = 1; c < static_cast<std::size_t>(r.classes) && c <= 8; ++c) {
    plot::Series points{
        .label = fmt::format("{}: Dice {:.3f}", name_of(r, c), mean_of(r.cases, &Case::dice, c).value), .x = {}, .y = {}};
    for (const auto& each : r.cases) points.x.push_back(each.truth[c]), points.y.push_back(each.predicted[c]);
    scatter.series.push_back(std::move(points));
  }
  panels.emplace_back(std::move(scatter));
  if (!r.epochs.empty()) {
    plot::Lines dice{.title = "Dice of the validation volumes", .x_label = "epoch", .markers = true, .series = {}};
    for (std::size_t c = 0; c + 1 < static_cast<std::size_t>(r.classes) && c < 8; ++c)
      dice.series.push_back(curve(name_of(r, c + 1), r.epochs, [c](const Epoch& e) { return e.dice[c]; }));
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
