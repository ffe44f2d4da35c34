// Post-processing that is chosen by scores of validation volumes: the classes of which only the largest component is kept.

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> texts_of(const std::vector<Region>& regions) {
  std::vector<std::string> texts;
  for (const auto& region : regions) texts.push_back(text_of(region));
  return texts;
}

std::string names_of(const std::vector<std::string>& regions, std::int64_t classes) {
  return regions.empty() ? fmt::format("{} classes", classes) : "the regions " + joined(regions, ", ");
}

Json number(double value) { return std::isnan(value) ? Json() : Json(value); }

}  // namespace

std::vector<std::int64_t> chosen_components(const std::vector<Case>& cases, std::int64_t classes) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t c = 1; c < classes; ++c) {
    const auto label = static_cast<std::size_t>(c);
    if (mean_of(cases, &Case::component_dice, label).value > mean_of(cases, &Case::dice, label).value) chosen.push_back(c);
  }
  return chosen;
}

std::string to_postprocessing(const SegmentationProgram& program, const std::vector<Case>& cases, std::int64_t classes,
                              const std::vector<Region>& targets) {
  Json document{{"program", program.name}, {"classes", classes}, {"volumes", cases.size()}};
  if (!targets.empty()) document["regions"] = texts_of(targets);
  document["largest_component"] = chosen_components(cases, classes);
  auto& scores = document["scores"] = Json::array();
  for (std::int64_t c = 1; c < classes; ++c) {
    const auto label = static_cast<std::size_t>(c);
    scores.push_back({{"class", c},
                      {"dice", number(mean_of(cases, &Case::dice, label).value)},
                      {"dice_of_largest_component", number(mean_of(cases, &Case::component_dice, label).value)}});
  }
  return tool::to_text(document) + "\n";
}

std::vector<std::int64_t> read_postprocessing(const std::filesystem::path& path, std::int64_t classes,
                                              const std::vector<Region>& targets) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.good() && !std::filesystem::is_directory(path), "[postprocessing] {}: no such file", path.string());
  const auto text = read_bounded(stream);
  const auto excess = excess_of_json(text);
  require(excess.empty(), "[postprocessing] {} {}", path.string(), excess);
  std::vector<std::int64_t> largest;
  std::vector<std::string> regions;
  std::int64_t of = 0;
  try {
    const auto document = Json::parse(text);
    document.at("classes").get_to(of), document.at("largest_component").get_to(largest);
    if (document.contains("regions")) document.at("regions").get_to(regions);
  } catch (const Json::exception&) {
    fail("[postprocessing] {} is no {} that evaluate or train has written", path.string(), postprocessing_file);
  }
  const auto own = texts_of(targets);
  require(of == classes && regions == own, "[postprocessing] {} is for {}, the weights have {}", path.string(),
          names_of(regions, of), names_of(own, classes));
  for (const auto c : largest)
    require(c >= 1 && c < classes, "[postprocessing] {}: largest_component has the class {}; classes are 1 to {}", path.string(),
            c, classes - 1);
  return largest;
}

}  // namespace mpigrad::trainer::segmenting
