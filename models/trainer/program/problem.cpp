// The problem as a note of weights.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "framework/base/text_bounds.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer {

const Value& Problem::value_of(const std::string& name) const {
  const auto found = values.find(name);
  require(found != values.end(), "[trainer] there is no setting '{}'", name);
  return found->second;
}

std::string Problem::class_name(std::int64_t label) const {
  return class_names.empty() ? std::to_string(label) : class_names[static_cast<std::size_t>(label)];
}

namespace program {
namespace {

// Reads the settings of a note, each with its own type.
void take_settings(const Program& program, const nlohmann::ordered_json& settings, Problem& p) {
  for (const auto& [name, value] : settings.items()) {
    const auto known = std::find_if(program.settings.begin(), program.settings.end(),
                                    [&key = name](const Setting& setting) { return setting.name == key; });
    require(known != program.settings.end(), "there is no setting '{}'", name);
    auto& to = p.values[name] = known->value;
    std::visit([&from = value](auto& x) { from.get_to(x); }, to);
  }
}

// Sets defaults for settings that are newer than the note. Error: a value that the setting refuses.
void complete_settings(const Program& program, Problem& p) {
  for (const auto& setting : program.settings) {
    const auto& value = p.values.emplace(setting.name, setting.value).first->second;
    if (value == setting.value || !setting.rule.problem) continue;
    auto document = to_json(value);
    if (!document.is_array()) document = nlohmann::ordered_json::array({document});
    for (const auto& each : document) {
      const auto problem = setting.rule.problem(each.is_string() ? each.get<std::string>() : each.dump());
      require(problem.empty(), "the setting '{}': {}", setting.name, problem);
    }
  }
}

bool is_sound(const Problem& p) {
  const auto outputs = static_cast<std::size_t>(p.outputs);
  const bool named = p.classes ? p.targets.size() == 1 && (p.class_names.empty() || p.class_names.size() == outputs)
                               : p.targets.size() == outputs;
  const bool standardised = (p.means.empty() || (p.means.size() == outputs && !p.classes)) &&
                            p.deviations.size() == p.means.size() &&
                            std::all_of(p.means.begin(), p.means.end(), [](double m) { return std::isfinite(m); }) &&
                            std::all_of(p.deviations.begin(), p.deviations.end(), [](double d) { return d > 0; });
  return p.extents.rank() == 3 && p.channels >= 1 && p.outputs >= (p.classes ? 2 : 1) && p.outputs <= 65536 && named &&
         standardised;
}

}  // namespace

nlohmann::ordered_json to_json(const Value& value) {
  return std::visit([](const auto& x) { return nlohmann::ordered_json(x); }, value);
}

Problem problem_of(const Program& program, const TrainOptions& o) {
  Problem p{.values = o.values, .norm = {.momentum = o.norm_momentum, .statistics = statistics_of(o)}, .keep = o.keep};
  if (program.complete) program.complete(p.values);
  return p;
}

std::string to_note(const Problem& p) {
  nlohmann::ordered_json document{{"extents", std::vector<std::int64_t>(p.extents.begin(), p.extents.end())},
                                  {"channels", p.channels},
                                  {"outputs", p.outputs},
                                  {"classes", p.classes},
                                  {"targets", p.targets},
                                  {"class_names", p.class_names}};
  if (!p.means.empty()) document.update({{"means", p.means}, {"deviations", p.deviations}});
  auto& values = document["settings"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : p.values) values[name] = to_json(value);
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Problem problem_of(const Program& program, const std::string& weights, const CheckpointInfo& info) {
  const auto read = [&] {
    for (const auto& [name, text] : info.notes)
      if (text.starts_with('{'))
        if (const auto excess = excess_of_json(text); !excess.empty()) fail("the note '{}' {}", name, excess);
    std::optional<Problem> earlier;
    if (program.earlier && !info.notes.contains(problem_note)) earlier = program.earlier(info.notes);
    if (earlier) {
      const auto means = means_of(weights, info);
      if (means && earlier->targets.empty()) earlier->targets = means->names, earlier->outputs = std::ssize(means->names);
      return *earlier;
    }
    const auto& note = note_of(weights, info, problem_note);
    const auto document = nlohmann::ordered_json::parse(note);
    const auto extents = document.at("extents").get<std::vector<std::int64_t>>();
    Problem p{.extents = Shape(std::span(extents))};
    document.at("channels").get_to(p.channels), document.at("outputs").get_to(p.outputs);
    document.at("classes").get_to(p.classes), document.at("targets").get_to(p.targets);
    if (document.contains("class_names")) document.at("class_names").get_to(p.class_names);
    if (document.contains("means")) document.at("means").get_to(p.means), document.at("deviations").get_to(p.deviations);
    take_settings(program, document.at("settings"), p);
    return p;
  };
  std::string why;
  try {
    auto p = read();
    complete_settings(program, p);
    if (program.complete) program.complete(p.values);
    if (is_sound(p)) return p;
  } catch (const nlohmann::ordered_json::exception&) {
    why = "";  // a parser's message does not help
  } catch (const Error& error) {
    if (std::string(error.what()).starts_with("[weights]")) throw;
    why = fmt::format(": {}", error.what());
  }
  fail("[weights] {}: its notes do not describe a network of {}{}", weights, program.name, why);
}

SplitNotes split_notes(const Program& program) {
  if (program.kept.by_seed) return {.samples = "samples", .fraction = "test fraction", .seed = "seed", .kept = "test samples"};
  return {.samples = "all samples", .fraction = "validation fraction", .seed = "split seed", .kept = "validation"};
}

}  // namespace program
}  // namespace mpigrad::trainer
