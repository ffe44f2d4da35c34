#include <nlohmann/json.hpp>

#include <cmath>

#include "framework/base/joined.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

CsvCell cell(double value) { return std::isnan(value) ? CsvCell("") : CsvCell(value); }

void write_cases(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample"};
  for (std::int64_t c = 1; c < r.classes; ++c)
    for (const char* what : {"dice", "hausdorff95_mm", "true_mm3", "predicted_mm3"})
      columns.push_back(fmt::format("{}_{}", what, c));
  CsvWriter csv(path, columns, true);
  for (const auto& each : r.cases) {
    std::vector<CsvCell> row{source.name_of_sample(each.sample)};
    for (std::size_t c = 1; c < static_cast<std::size_t>(r.classes); ++c)
      for (const auto* list : {&each.dice, &each.hausdorff, &each.truth, &each.predicted}) row.push_back(cell((*list)[c]));
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
  fmt::print("\nclass   Dice (least)      HD95 in mm   on {} volumes\n", r.cases.size());
  for (std::size_t c = 1; c < static_cast<std::size_t>(r.classes); ++c) {
    const auto dice = mean_of(r.cases, &Case::dice, c), distance = mean_of(r.cases, &Case::hausdorff, c);
    std::string text;
    if (dice.undefined > 0) text += fmt::format("   {} without the class", dice.undefined);
    if (distance.undefined > 0) text += fmt::format("   {} distances undefined", distance.undefined);
    fmt::print("{:>5} {:>6.3f} ({:>5.3f}) {:>15.2f}{}\n", c, dice.value, least_dice(r.cases, c), distance.value, text);
  }
  fmt::print(" mean {:>6.3f}\n", mean_dice(r.cases, r.classes));
}

}  // namespace

std::string picture_file(const SegmentationProgram& program) { return program.name + ".png"; }

void report(const SegmentationProgram& program, const Options& o, const Outputs& out, const Results& r, const Volumes& volumes,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text) {
  write_cases(out / cases_file, r, *volumes.stored);
  draw(out / picture_file(program), r, volumes);
  auto document = std::move(run);
  auto& classes = document["classes_scored"] = nlohmann::ordered_json::array();
  for (std::size_t c = 1; c < static_cast<std::size_t>(r.classes); ++c) {
    const auto dice = mean_of(r.cases, &Case::dice, c), distance = mean_of(r.cases, &Case::hausdorff, c);
    classes.push_back({{"class", c},
                       {"dice", number(dice.value)},
                       {"least_dice", number(least_dice(r.cases, c))},
                       {"without_class", dice.undefined},
                       {"hausdorff95_mm", number(distance.value)},
                       {"undefined_distances", distance.undefined}});
  }
  document["mean_dice"] = number(mean_dice(r.cases, r.classes));
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
