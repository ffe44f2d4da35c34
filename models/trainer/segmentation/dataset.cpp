#include "models/trainer/segmentation/dataset.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::trainer::segmenting {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::optional<DataFolders> data_folders(const fs::path& path, bool wants_labels) {
  std::error_code error;
  for (const auto& [images, labels] : {std::pair{"images", "labels"}, {"imagesTs", ""}, {"imagesTr", "labelsTr"}}) {
    const bool unlabelled = std::string(labels).empty();
    if (!fs::is_directory(path / images, error) || (wants_labels && unlabelled)) continue;
    if (!wants_labels) return DataFolders{path / images, {}};
    require(fs::is_directory(path / labels, error), "[data] {} has {}/ and no {}/", path.string(), images, labels);
    return DataFolders{path / images, path / labels};
  }
  return std::nullopt;
}

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  require(static_cast<bool>(stream), "[data] {} cannot be read", path.string());
  return text.str();
}

std::int64_t number_of(const Json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  // Version 1 has the numbers as texts.
  const auto text = value.get<std::string>();
  const bool digits = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoll(text) : -1;
}

constexpr std::int64_t most_classes = 10000;

void take_labels(const Json& labels, DatasetFile& file) {
  std::int64_t most = -1;
  bool unions = false;
  for (const auto& [key, value] : labels.items()) {
    if (value.is_array()) {  // version 2: a region
      unions = true;
      std::vector<std::int64_t> numbers;
      for (const auto& each : value) numbers.push_back(number_of(each)), most = std::max(most, numbers.back());
      file.regions.push_back(fmt::format("{}={}", key, joined(numbers, "+")));
      continue;
    }
    // Version 2 is NAME: NUMBER, version 1 "NUMBER": NAME.
    const bool second = value.is_number_integer();
    const auto label = number_of(second ? value : Json(key));
    const auto name = second ? key : value.get<std::string>();
    require(label >= 0, "[data] {}: '{}' of the labels has no number", file.path.string(), printable(key));
    if (name == "ignore") file.ignored.push_back(label);
    else most = std::max(most, label);
    if (name != "ignore" && label > 0) file.regions.push_back(fmt::format("{}={}", name, label));
  }
  if (!unions) file.regions.clear();
  require(most < most_classes, "[data] {}: a label is {}; labels are below {}", file.path.string(), most, most_classes);
  file.classes = most + 1;
}

}  // namespace

DatasetFile read_dataset_file(const fs::path& path) {
  DatasetFile file{.path = path / "dataset.json"};
  std::error_code error;
  if (!fs::is_directory(path / "imagesTr", error) || !fs::is_regular_file(file.path, error)) return {};
  const auto text = text_of(file.path);
  const auto excess = excess_of_json(text);
  require(excess.empty(), "[data] {} {}", file.path.string(), excess);
  try {
    const auto document = Json::parse(text);
    (void)document.get_ref<const Json::object_t&>();
    if (document.contains("labels")) take_labels(document.at("labels"), file);
    if (document.contains("regions_class_order")) document.at("regions_class_order").get_to(file.region_order);
    for (const char* name : {"channel_names", "modality"})
      if (document.contains(name)) {
        file.channels = static_cast<std::int64_t>(document.at(name).size());
        std::map<std::int64_t, std::string> numbered;  // "1" may come before "0"
        for (const auto& [key, modality] : document.at(name).items())
          numbered.emplace(number_of(Json(key)), modality.get<std::string>());
        file.modalities.clear();
        for (auto& [number, modality] : numbered) file.modalities.push_back(std::move(modality));
      }
    if (document.contains("numTraining")) file.images = number_of(document.at("numTraining"));
  } catch (const Json::exception&) {
    fail("[data] {} is no description of a data set: labels, channel_names and numTraining as nnU-Net has them",
         file.path.string());
  }
  return file;
}

}  // namespace mpigrad::trainer::segmenting
