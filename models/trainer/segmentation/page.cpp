// The page of a segmentation's scores.

#include <algorithm>
#include <cmath>

#include "models/trainer/plot/figure.h"
#include "models/trainer/plot/page.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

std::string number(double value, int digits = 3) { return std::isnan(value) ? "none" : fmt::format("{:.{}f}", value, digits); }

// A row for the mean of each class or region.
std::vector<std::vector<std::string>> rows_of_labels(const Results& r, std::size_t first, std::size_t end) {
  std::vector<std::vector<std::string>> rows;
  for (auto c = first; c < end; ++c) {
    const auto of = [&](std::vector<double> Case::*values) { return mean_of(r.cases, values, c).value; };
    double least = std::nan("");
    for (const auto& each : r.cases) least = std::fmin(least, each.dice[c]);
    const auto [low, high] = interval_of(r.cases, &Case::dice, c);
    const double volume = of(&Case::volume_difference);
    rows.push_back({r.name_of(c), number(of(&Case::dice)), fmt::format("{} to {}", number(low), number(high)), number(least),
                    number(of(&Case::jaccard)), number(of(&Case::hausdorff), 2), number(of(&Case::within)),
                    std::isnan(volume) ? "none" : fmt::format("{:.1f} %", 100 * volume),
                    std::to_string(mean_of(r.cases, &Case::dice, c).undefined)});
  }
  return rows;
}

}  // namespace

std::string page_of(const SegmentationProgram& program, const Results& r, const Volumes& volumes,
                    const std::filesystem::path& picture, const std::string& text) {
  plot::Page page(fmt::format("{}: scores of {} volumes", program.name, r.cases.size()));
  const auto [low, high] = dice_interval(r.cases, r.classes);
  page.paragraph(fmt::format(
      "Mean Dice of the {} {}{}.", r.targets.empty() ? "classes" : "regions", number(mean_dice(r.cases, r.classes)),
      std::isnan(low) ? "" : fmt::format(", 95 % of bootstrap samples of the volumes from {} to {}", number(low), number(high))));
  const auto table = [&](const std::string& kind, std::size_t first, std::size_t end) {
    if (first == end) return;
    page.heading(kind == "class" ? "Classes" : "Regions");
    page.table({kind, "Dice", "95 % interval", "least Dice", "IoU", "HD95 in mm", "surface Dice", "volume", "volumes without it"},
               rows_of_labels(r, first, end));
  };
  const auto classes = static_cast<std::size_t>(r.classes);
  if (r.targets.empty()) table("class", 1, classes);
  table("region", r.targets.empty() ? classes : 1, r.labels());
  page.paragraph(
      "A class that is neither true nor predicted is left out. A class that is only one of the two has the Dice 0 and, as its "
      "distance, the volume's diagonal. HD95: the 95 % Hausdorff distance. Volume: how far the predicted volume is from the true "
      "one, the mean over scans.");
  if (const auto chosen = chosen_components(r.cases, r.classes); !chosen.empty())
    for (const auto c : chosen)
      page.paragraph(fmt::format("{} {}: Dice {} if only its largest component is kept ({}).",
                                 r.targets.empty() ? "Class" : "Region", r.name_of(static_cast<std::size_t>(c)),
                                 number(mean_of(r.cases, &Case::component_dice, static_cast<std::size_t>(c)).value),
                                 postprocessing_file));

  if (!r.shown.empty() && plot::available()) {
    page.heading("Worst volumes");
    draw_slices(picture, r, volumes);
    page.picture(picture, "Slices of the volumes with the smallest Dice: prediction solid, truth dashed");
    std::filesystem::remove(picture);
  }

  page.heading("Volumes, the worst first");
  // More columns than a page can show are in the file of cases.
  constexpr std::size_t most_labels = 12;
  const bool wide = r.labels() <= most_labels;
  std::vector<std::string> columns{"volume", "mean Dice"};
  for (std::size_t c = 1; c < r.labels(); ++c)
    for (const char* what : {"Dice", "HD95", "surface Dice"})
      if (wide || what == std::string("Dice")) columns.push_back(fmt::format("{} {}", what, r.name_of(c)));
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < r.cases.size(); ++i) {
    const double mean = mean_dice(r.cases[i], r.classes);
    order.emplace_back(std::isnan(mean) ? 2 : mean, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::vector<std::string>> rows;
  for (const auto& [mean, i] : order) {
    const auto& each = r.cases[i];
    auto& row = rows.emplace_back();
    row = {std::filesystem::path(volumes.stored->name_of_sample(each.sample)).filename().string(),
           number(mean_dice(each, r.classes))};
    for (std::size_t c = 1; c < r.labels(); ++c) {
      row.push_back(number(each.dice[c]));
      if (!wide) continue;
      row.push_back(number(each.hausdorff[c], 2));
      row.push_back(number(each.within[c]));
    }
  }
  page.table(columns, rows);
  if (!wide) page.paragraph(fmt::format("{} has the distances of each volume, too.", cases_file));
  page.text(text);
  return page.html();
}

}  // namespace mpigrad::trainer::segmenting
