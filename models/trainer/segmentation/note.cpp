// The note in weights that describes the network and its training.

#include <nlohmann/json.hpp>

#include <algorithm>

#include "framework/base/text_bounds.h"
#include "models/trainer/program/setting_keys.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

using Json = nlohmann::ordered_json;

// The setting's name in the note; empty: the note does not have it.
std::string note_name(const SegmentationProgram& program, const Setting& setting) {
  const auto other = program.note_names.find(setting.name);
  return other == program.note_names.end() ? setting.name : other->second;
}

Json json_of(const Value& value) {
  return std::visit([](const auto& x) { return Json(x); }, value);
}

// The value as the texts that a key takes.
std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> texts;
  const auto add = [&](const Json& x) { texts.push_back(x.is_string() ? x.get<std::string>() : x.dump()); };
  if (!value.is_array()) add(value);
  else
    for (const auto& each : value) add(each);
  return texts;
}

}  // namespace

std::string to_note(const SegmentationProgram& program, const Trained& t) {
  Json document;
  const auto add = [&](const std::string& name, const Json& value) {
    require(!document.contains(name), "[trainer] two entries of the weights' note are called '{}'", name);
    document[name] = value;
  };
  for (const auto& setting : program.settings)
    if (const auto name = note_name(program, setting); !name.empty()) add(name, json_of(t.problem.values.at(setting.name)));
  const auto& w = t.problem.extents;
  add("classes", t.problem.outputs), add("channels", t.problem.channels), add("window", Json::array({w[0], w[1], w[2]}));
  add("normalisation", t.normalisation);
  if (!t.intensities.empty()) add("intensities", t.intensities);
  if (t.spacing) add("spacing", *t.spacing);
  if (t.interpolation != "linear") add("interpolation", t.interpolation);
  if (!t.label_map.empty()) add("label_map", t.label_map);
  if (!t.ignored.empty()) add("ignored_labels", t.ignored);
  if (t.channel_files) add("channel_files", true);
  if (!t.regions.empty()) {
    auto regions = Json::array();
    for (const auto& region : t.regions) regions.push_back(Json::array({text_of(region), region.written}));
    add("regions", regions), add("label_classes", t.label_classes);
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Trained trained_of(const SegmentationProgram& program, const std::string& weights, const CheckpointInfo& info) {
  const auto note = info.notes.find(program.name);
  require(note != info.notes.end(), "[weights] {} holds no weights of this program: it does not say which network they are of",
          weights);
  const auto excess = excess_of_json(note->second);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, program.name, excess);
  Trained t;
  t.problem.classes = true;
  Keys keys;
  add_setting_keys(keys, program.settings, t.problem.values);
  bool known = true;
  try {
    const auto document = Json::parse(note->second);
    for (const auto& setting : program.settings) {
      const auto name = note_name(program, setting);
      // A setting that is newer than the weights has its default.
      if (name.empty() || !document.contains(name)) continue;
      auto& key = keys[key_of(setting)];
      const auto texts = texts_of(document.at(name));
      if (texts == key.get()) continue;  // a default need not obey the rule
      known = known && key.check(texts).empty();
      if (known) key.set(texts);
    }
    document.at("classes").get_to(t.problem.outputs), document.at("channels").get_to(t.problem.channels);
    const auto window = document.at("window").get<std::array<std::int64_t, 3>>();
    t.problem.extents = {window[0], window[1], window[2]};
    document.at("normalisation").get_to(t.normalisation);
    if (document.contains("intensities")) document.at("intensities").get_to(t.intensities);
    if (document.contains("spacing")) t.spacing = document.at("spacing").get<std::array<double, 3>>();
    t.interpolation = document.value("interpolation", t.interpolation);
    if (document.contains("label_map")) document.at("label_map").get_to(t.label_map);
    if (document.contains("ignored_labels")) document.at("ignored_labels").get_to(t.ignored);
    t.channel_files = document.value("channel_files", false);
    if (document.contains("regions")) {
      std::vector<std::string> texts;
      std::vector<std::int64_t> order;
      for (const auto& region : document.at("regions"))
        texts.push_back(region.at(0).get<std::string>()), order.push_back(region.at(1).get<std::int64_t>());
      t.regions = regions_of(texts, order);
      document.at("label_classes").get_to(t.label_classes);
      known =
          known && t.problem.outputs == static_cast<std::int64_t>(t.regions.size()) && t.label_classes >= classes_of(t.regions);
    }
  } catch (const Json::exception&) {
    known = false;
  }
  known = known && (t.interpolation == "linear" || t.interpolation == "cubic");
  require(
      known && t.problem.outputs >= (t.regions.empty() ? 2 : 1) && t.problem.channels >= 1 && t.problem.extents.elements() > 0,
      "[weights] {}: the note '{}' does not describe a network", weights, program.name);
  return t;
}

nlohmann::ordered_json summary_of(const SegmentationProgram& program, const std::string& command, const Problem& problem) {
  Json document = Json::object();
  const auto chosen = program.summaries.find(command);
  for (const auto& setting : program.settings)
    if (chosen == program.summaries.end() ||
        std::find(chosen->second.begin(), chosen->second.end(), setting.name) != chosen->second.end())
      document[setting.name] = json_of(problem.values.at(setting.name));
  return document;
}

}  // namespace mpigrad::trainer::segmenting
