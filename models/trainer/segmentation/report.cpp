#include <nlohmann/json.hpp>

#include <cmath>

#include "framework/base/joined.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

CsvCell cell(double value) { return std::isnan(value) ? CsvCell("") : CsvCell(value); }

void write_cases(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample"};
  for (std::size_t c = 1; c < r.labels(); ++c)
    for (const char* what : {"dice", "iou", "hausdorff95_mm", "surface_dice", "true_mm3", "predicted_mm3", "volume_difference"})
      columns.push_back(fmt::format("{}_{}", what, r.name_of(c)));
  CsvWriter csv(path, columns, true);
  for (const auto& each : r.cases) {
    std::vector<CsvCell> row{source.name_of_sample(each.sample)};
    for (std::size_t c = 1; c < r.labels(); ++c)
      for (const auto* list :
           {&each.dice, &each.jaccard, &each.hausdorff, &each.within, &each.truth, &each.predicted, &each.volume_difference})
        row.push_back(cell((*list)[c]));
    csv.row(row);
  }
}

double least_dice(const std::vector<Case>& cases, std::size_t label) {
  double least = std::nan("");
  for (const auto& each : cases) least = std::fmin(least, each.dice[label]);
  return least;
}

nlohmann::ordered_json number(double value) {
  return std::isnan(value) ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}

void print_scores(const Results& r) {
  fmt::print("\n{:<8}Dice (least)    IoU   HD95 in mm   surface Dice   volume   on {} volumes\n",
             r.is_region(1) ? "region" : "class", r.cases.size());
  for (std::size_t c = 1; c < r.labels(); ++c) {
    const auto of = [&](std::vector<double> Case::*values) { return mean_of(r.cases, values, c).value; };
    const auto dice = mean_of(r.cases, &Case::dice, c);
    fmt::print("{:>5} {:>6.3f} ({:>5.3f}) {:>6.3f} {:>12.2f} {:>14.3f} {:>7.1f} %{}\n", r.name_of(c), dice.value,
               least_dice(r.cases, c), of(&Case::jaccard), of(&Case::hausdorff), of(&Case::within),
               100 * of(&Case::volume_difference),
               dice.undefined > 0 ? fmt::format("   {} without the class", dice.undefined) : "");
  }
  const auto [low, high] = dice_interval(r.cases, r.classes);
  fmt::print(" mean {:>6.3f}{}\n", mean_dice(r.cases, r.classes),
             std::isnan(low) ? "" : fmt::format("   95 % of bootstrap samples of the volumes: {:.3f} to {:.3f}", low, high));
}

}  // namespace

std::string picture_file(const SegmentationProgram& program) { return program.name + ".png"; }

void report(const SegmentationProgram& program, const Options& o, const Outputs& out, const Results& r, const Volumes& volumes,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text) {
  write_cases(out / cases_file, r, *volumes.stored);
  draw(out / picture_file(program), r, volumes);
  write_text(out / postprocessing_file, to_postprocessing(program, r.cases, r.classes, r.targets));
  write_text(out / report_file, page_of(program, r, volumes, out / "report.png", text));
  auto document = std::move(run);
  auto& classes = document["classes_scored"] = nlohmann::ordered_json::array();
  for (std::size_t c = 1; c < r.labels(); ++c) {
    const auto of = [&](std::vector<double> Case::*values) { return number(mean_of(r.cases, values, c).value); };
    const auto interval = [&](std::vector<double> Case::*values) {
      const auto [from, to] = interval_of(r.cases, values, c);
      return nlohmann::ordered_json{number(from), number(to)};
    };
    nlohmann::ordered_json label;
    if (r.is_region(c)) label["region"] = r.name_of(c);
    else label["class"] = c;
    label.update({{"dice", of(&Case::dice)},
                  {"dice_interval", interval(&Case::dice)},
                  {"least_dice", number(least_dice(r.cases, c))},
                  {"without_class", mean_of(r.cases, &Case::dice, c).undefined},
                  {"iou", of(&Case::jaccard)},
                  {"iou_interval", interval(&Case::jaccard)},
                  {"hausdorff95_mm", of(&Case::hausdorff)},
                  {"hausdorff95_mm_interval", interval(&Case::hausdorff)},
                  {"surface_dice", of(&Case::within)},
                  {"surface_dice_interval", interval(&Case::within)},
                  {"volume_difference", of(&Case::volume_difference)},
                  {"volume_difference_interval", interval(&Case::volume_difference)}});
    classes.push_back(std::move(label));
  }
  document["mean_dice"] = number(mean_dice(r.cases, r.classes));
  const auto [low, high] = dice_interval(r.cases, r.classes);
  document["dice_interval"] = {number(low), number(high)};
  auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
  for (const auto& e : r.epochs)
    epochs.push_back(
        {{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"validation_loss", number(e.validation)}, {"dice", e.dice}});
  document["out"] = out.folder();
  write_text(out / summary_file, tool::to_text(document) + "\n");
  if (o.json) return fmt::print("{}\n", tool::to_text(document));
  print_scores(r);
  fmt::print("\n{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(files), ", "));
}

}  // namespace mpigrad::trainer::segmenting
