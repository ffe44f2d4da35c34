// The problem as a note of weights, and as the samples have it.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "framework/base/joined.h"
#include "framework/base/text_bounds.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer {

const Value& Problem::value_of(const std::string& name) const {
  const auto found = values.find(name);
  require(found != values.end(), "[trainer] there is no setting '{}'", name);
  return found->second;
}

namespace program {

std::string to_note(const Problem& p) {
  nlohmann::ordered_json document{{"extents", std::vector<std::int64_t>(p.extents.begin(), p.extents.end())},
                                  {"channels", p.channels},
                                  {"outputs", p.outputs},
                                  {"classes", p.classes},
                                  {"targets", p.targets}};
  auto& values = document["settings"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : p.values) std::visit([&values, &key = name](const auto& x) { values[key] = x; }, value);
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Problem problem_of(const std::string& weights, const CheckpointInfo& info) {
  const auto& note = note_of(weights, info, problem_note);
  const auto excess = excess_of_json(note);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, problem_note, excess);
  Problem p;
  try {
    const auto document = nlohmann::ordered_json::parse(note);
    const auto extents = document.at("extents").get<std::vector<std::int64_t>>();
    p.extents = Shape(std::span(extents));
    document.at("channels").get_to(p.channels), document.at("outputs").get_to(p.outputs);
    document.at("classes").get_to(p.classes), document.at("targets").get_to(p.targets);
    for (const auto& [name, value] : document.at("settings").items()) {
      if (value.is_boolean()) p.values[name] = value.get<bool>();
      else if (value.is_number_integer()) p.values[name] = value.get<std::int64_t>();
      else if (value.is_number()) p.values[name] = value.get<double>();
      else if (value.is_array()) p.values[name] = value.get<std::vector<std::int64_t>>();
      else p.values[name] = value.get<std::string>();
    }
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' does not describe a network", weights, problem_note);
  }
  require(p.extents.rank() == 3 && p.channels >= 1 && p.outputs >= 1 && p.outputs <= 65536,
          "[weights] {}: the note '{}' does not describe a network", weights, problem_note);
  return p;
}

void describe_samples(Problem& p, const data::Source& source) {
  const auto& targets = source.target_type();
  require(!targets.per_cell && targets.shape.elements() > 0,
          "[data] the samples of {} have {}; a target is a row of numbers or a class of each sample", source.name_of_sample(0),
          targets.per_cell ? "a target for each cell" : "no targets");
  p.extents = source.extents(), p.channels = source.channels();
  p.targets = source.target_names(), p.classes = source.has_classes(), p.outputs = targets.shape.elements();
  if (!p.classes) return;
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < source.size(); ++i)
    for (const double label : source.targets(i)) {
      require(label >= 0 && label < 65536, "[data] the class of {} is {}; classes count from 0", source.name_of_sample(i), label);
      largest = std::max(largest, static_cast<std::int64_t>(label));
    }
  p.outputs = largest + 1;
}

void require_fitting(const Problem& p, const data::Source& source, bool scored, const std::string& of) {
  require(source.extents() == p.extents && source.channels() == p.channels, "[data] {} is {} x {}, {} is of {} x {}",
          source.name_of_sample(0), source.extents(), source.channels(), of, p.extents, p.channels);
  if (!scored) return;
  auto here = p;
  describe_samples(here, source);
  require(here.classes == p.classes && here.targets == p.targets &&
              (p.classes ? here.outputs <= p.outputs : here.outputs == p.outputs),
          "[data] {} has {} {} ({}), {} {} {} ({})", source.name_of_sample(0), here.outputs, here.classes ? "classes" : "numbers",
          joined(here.targets, ", "), of, p.outputs, p.classes ? "classes" : "numbers", joined(p.targets, ", "));
}

data::SourcePtr open(const Program& program, const SampleOptions& o, const std::string& path, const std::string& part,
                     bool targets) {
  if (path.empty()) throw UsageError("--data is needed");
  auto source = program.open ? program.open(path, part) : trainer::open(o, path, part, targets);
  require(source != nullptr, "[data] {} opens nothing at {}", program.name, path);
  return targets ? source : chosen(source, all_samples(*source), "", {});
}

std::vector<std::string> value_names(const Program& program) {
  std::vector<std::string> names{"validation_loss"};
  for (const auto& metric : program.metrics) names.push_back(metric.name);
  return names;
}

std::vector<double> values_of(const Program& program, const data::Source& source, const Predictions& p) {
  const Untaped scope;
  const auto n = static_cast<std::int64_t>(p.samples.size());
  Shape shape{n};  // as that of data::Batch::y
  if (!source.has_classes() || p.targets > 1)
    for (const auto extent : source.target_type().shape) shape.push_back(extent);
  const auto loss = program.loss(from_vector({n, p.outputs}, p.predicted, DType::float64),
                                 from_vector(shape, p.truth, source.has_classes() ? DType::int64 : DType::float64));
  std::vector<double> values{loss.item()};
  for (const auto& metric : program.metrics) values.push_back(metric.value(p));
  return values;
}

}  // namespace program
}  // namespace mpigrad::trainer
