// The notes in which the trainers describe a network: lines of JSON.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "framework/base/text_bounds.h"
#include "models/networks/described/described.h"

namespace mpigrad {
namespace {

using Json = nlohmann::json;

NetworkDescription::Setting setting_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::vector<std::int64_t>>();
}

// The note `problem` of programs of trainer::run().
void take_problem(const Json& note, NetworkDescription& d) {
  d.extents = Shape(std::span<const std::int64_t>(note.at("extents").get<std::vector<std::int64_t>>()));
  note.at("channels").get_to(d.channels), note.at("outputs").get_to(d.outputs);
  if (note.contains("means")) note.at("means").get_to(d.means), note.at("deviations").get_to(d.deviations);
  for (const auto& [name, value] : note.at("settings").items()) d.settings[name] = setting_of(value);
}

// The note of segmentation programs, which has the program's name.
void take_segmentation(const Json& note, NetworkDescription& d) {
  d.extents = Shape(std::span<const std::int64_t>(note.at("window").get<std::vector<std::int64_t>>()));
  note.at("channels").get_to(d.channels), note.at("classes").get_to(d.outputs);
  const auto rest = {"window", "channels", "classes", "normalisation", "spacing", "label_map", "ignored_labels", "channel_files"};
  for (const auto& [name, value] : note.items())
    if (std::find(rest.begin(), rest.end(), name) == rest.end())
      d.settings[name == "norm_groups" ? "groups" : name] = setting_of(value);
}

bool is_sound(const NetworkDescription& d) {
  const auto& e = d.extents;
  const auto outputs = static_cast<std::size_t>(d.outputs);
  return e.rank() == 3 && e[0] > 0 && e[1] > 0 && e[2] > 0 && d.channels >= 1 && d.outputs >= 1 && d.outputs <= 65536 &&
         (d.means.empty() || d.means.size() == outputs) && d.deviations.size() == d.means.size() &&
         std::all_of(d.means.begin(), d.means.end(), [](double x) { return std::isfinite(x); }) &&
         std::all_of(d.deviations.begin(), d.deviations.end(), [](double x) { return std::isfinite(x) && x > 0; });
}

}  // namespace

NetworkDescription describe_network(const std::filesystem::path& weights, const CheckpointInfo& info) {
  const auto json_of = [&](const std::string& name) -> std::optional<Json> {
    const auto note = info.notes.find(name);
    if (note == info.notes.end()) return std::nullopt;
    const auto excess = excess_of_json(note->second);
    require(excess.empty(), "[weights] {}: the note '{}' {}", weights.string(), name, excess);
    return Json::parse(note->second);
  };
  const auto program = info.notes.find("program");
  NetworkDescription d{.name = program == info.notes.end() ? "" : program->second};
  bool understood = true;
  try {
    if (const auto problem = json_of("problem")) {
      take_problem(*problem, d);
    } else if (const auto segmentation = json_of("unet3d")) {
      d.name = "unet3d", take_segmentation(*segmentation, d);
    } else if (describe_cosmoflow_of_version_0_1(info.notes, d)) {
      const auto means = json_of("target means");
      understood = means.has_value();
      if (means) d.outputs = static_cast<std::int64_t>(means->at("names").size());
    } else {
      fail("[weights] {} does not say which network its weights are of: it has no notes of cosmoflow, classify or unet3d",
           weights.string());
    }
  } catch (const Json::exception&) {
    understood = false;
  }
  require(understood && is_sound(d), "[weights] {}: its notes do not describe a network", weights.string());
  return d;
}

}  // namespace mpigrad
