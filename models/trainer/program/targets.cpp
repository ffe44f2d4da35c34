#include "models/trainer/program/targets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "framework/base/joined.h"
#include "framework/base/text_bounds.h"
#include "models/data/sources/hdf5.h"

namespace mpigrad::trainer::program {
namespace {

constexpr std::int64_t most_classes = 10000, most_numbers = 65536;

bool has_numbers(const data::Source& source) {
  const auto& targets = source.target_type();
  return is_floating(targets.type) && !targets.per_cell && targets.shape.elements() > 0;
}

std::vector<std::string> names_of(const data::Source& source) {
  auto names = source.target_names();
  for (auto t = std::ssize(names); t < source.target_type().shape.elements(); ++t) names.push_back(fmt::format("target {}", t));
  return names;
}

// The columns of rows at these places, in this order.
TargetRows columns(const TargetRows& rows, const std::vector<std::size_t>& places) {
  TargetRows result;
  for (const auto t : places) result.names.push_back(rows.names[t]);
  for (std::size_t row = 0; row < rows.values.size(); row += rows.names.size())
    for (const auto t : places) result.values.push_back(rows.values[row + t]);
  return result;
}

std::size_t place_of(const TargetRows& rows, const std::string& name) {
  const auto found = std::find(rows.names.begin(), rows.names.end(), name);
  require(found != rows.names.end(), "[data] there is no target '{}', but {}", name,
          rows.names.empty() ? "none" : joined(rows.names, ", "));
  return static_cast<std::size_t>(found - rows.names.begin());
}

std::vector<std::int64_t> picked(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> result;
  for (const auto sample : samples) result.push_back(all[static_cast<std::size_t>(sample)]);
  return result;
}

TargetRows picked(const TargetRows& all, const std::vector<std::int64_t>& samples) {
  const auto width = static_cast<std::ptrdiff_t>(all.names.size());
  TargetRows result{.names = all.names};
  for (const auto sample : samples) {
    const auto row = all.values.begin() + static_cast<std::ptrdiff_t>(sample) * width;
    result.values.insert(result.values.end(), row, row + width);
  }
  return result;
}

std::vector<std::int64_t> classes_like(const Problem& p, const data::Source& source, const SampleOptions& o) {
  const auto& known = source.target_names();
  // If no label is asked for and there are several, the label that was trained on.
  auto labels = labels_of(source, o.label.empty() && known.size() > 1 ? p.targets.front() : o.label, "a classifier");
  const auto names = class_names(source, o);
  if (names.empty() || p.class_names.empty()) return labels;
  std::vector<std::int64_t> class_of;
  for (const auto& name : names) {
    const auto found = std::find(p.class_names.begin(), p.class_names.end(), name);
    require(found != p.class_names.end(), "[data] {}: the class '{}' is none of {}", source.name_of_sample(0), name,
            joined(p.class_names, ", "));
    class_of.push_back(found - p.class_names.begin());
  }
  for (auto& each : labels) each = class_of[static_cast<std::size_t>(each)];
  return labels;
}

}  // namespace

Targets learned_targets(const Program& program, const data::Source& source, const SampleOptions& o, Problem& p) {
  require(!source.target_type().per_cell,
          "[data] the samples of {} have a target for each cell; here a sample has a class or numbers", source.name_of_sample(0));
  Targets targets;
  if (o.targets.empty() && o.label.empty() && !program.standardise && has_numbers(source)) {
    targets.as_stored = true, p.targets = names_of(source);
  } else {
    targets.rows = target_rows(source, o);
    if (!o.label.empty() && !targets.rows.names.empty()) targets.rows = columns(targets.rows, {place_of(targets.rows, o.label)});
    p.targets = targets.rows.names;
  }
  p.classes = p.targets.empty(), p.outputs = std::ssize(p.targets);
  const bool numbers = program.targets == TargetKind::numbers;
  require(!p.classes || (has_labels(source) && !numbers), "[data] {} needs {}; the samples of {} have none; {}", program.name,
          numbers                                  ? "numbers to predict"
          : program.targets == TargetKind::classes ? "labels"
                                                   : "labels, or numbers to predict",
          source.name_of_sample(0), "data.labels NAME=FILE gives labels, data.targets TABLE.csv numbers");
  require(p.classes || program.targets != TargetKind::classes, "[data] {} needs labels; the samples of {} have numbers",
          program.name, source.name_of_sample(0));
  require(p.outputs <= most_numbers, "[data] {} numbers for each sample are too many", p.outputs);
  if (!p.classes) return targets;
  p.targets = {source.target_names()[label_index(source, o.label)]}, p.class_names = class_names(source, o);
  targets.labels = labels_of(source, o.label, "a classifier");
  return targets;
}

Targets targets_like(const Problem& p, const data::Source& source, const SampleOptions& o) {
  if (p.classes) return {.labels = classes_like(p, source, o)};
  if (o.targets.empty() && o.label.empty() && p.means.empty() && has_numbers(source) && names_of(source) == p.targets)
    return {.as_stored = true};
  const auto names = o.label.empty() ? p.targets : std::vector{o.label};
  require(names.size() == p.targets.size(), "[data] data.label {} is one target, the weights predict {}", o.label,
          p.targets.size());
  const auto rows = target_rows(source, o);
  std::vector<std::size_t> places;
  for (const auto& name : names)
    places.push_back(o.label.empty() && names.size() == 1 && rows.names.size() == 1 ? 0 : place_of(rows, name));
  auto result = columns(rows, places);
  result.names = p.targets;
  return {.rows = std::move(result)};
}

Learned learned(const Problem& p, const data::SourcePtr& source, const Targets& targets, std::vector<std::int64_t> samples) {
  if (targets.as_stored) return {source, std::move(samples)};
  Learned result;
  if (p.classes) {
    result.source = chosen(source, samples, p.targets.front(), picked(targets.labels, samples));
  } else {
    auto rows = picked(targets.rows, samples);
    for (std::size_t i = 0; i < rows.values.size() && !p.means.empty(); ++i) {
      const auto t = i % p.means.size();
      rows.values[i] = (rows.values[i] - p.means[t]) / p.deviations[t];
    }
    result.source = chosen(source, samples, rows);
  }
  result.samples = all_samples(*result.source);
  return result;
}

void standardise(Problem& p, const TargetRows& all, const std::vector<std::int64_t>& samples) {
  const auto rows = picked(all, samples);
  const auto width = rows.names.size(), n = samples.size();
  p.means.assign(width, 0), p.deviations.assign(width, 0);
  for (std::size_t i = 0; i < rows.values.size(); ++i) p.means[i % width] += rows.values[i] / static_cast<double>(n);
  for (std::size_t i = 0; i < rows.values.size(); ++i)
    p.deviations[i % width] += std::pow(rows.values[i] - p.means[i % width], 2) / static_cast<double>(n);
  for (std::size_t t = 0; t < width; ++t) {
    auto& deviation = p.deviations[t];
    deviation = std::sqrt(deviation);
    if (!(deviation > 1e-12 * std::abs(p.means[t]))) deviation = 1;
  }
}

void restore_units(const Problem& p, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size() && !p.means.empty(); ++i) {
    const auto t = i % p.means.size();
    values[i] = p.means[t] + p.deviations[t] * values[i];
  }
}

std::vector<std::int64_t> count_classes(const data::Source& source, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> counts;
  for (const auto sample : samples) {
    const auto label = static_cast<std::int64_t>(source.targets(sample).front());
    require(label >= 0 && label < most_classes, "[data] the label of {} is {}; classes count from 0 and are at most {}",
            source.name_of_sample(sample), label, most_classes);
    if (static_cast<std::size_t>(label) >= counts.size()) counts.resize(static_cast<std::size_t>(label) + 1);
    ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

double majority_of(const std::vector<std::int64_t>& counts) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / static_cast<double>(all);
}

TargetMeans means_of(const Communicator& world, const Problem& p, const data::Source& source,
                     const std::vector<std::int64_t>& samples) {
  if (!p.means.empty()) return {.names = p.targets, .means = p.means};
  const auto n = p.targets.size();
  const auto* universes = dynamic_cast<const data::UniverseSource*>(&source);
  const bool physical = universes && universes->has_physical();
  // Means of the stored numbers u, the physical numbers p, and the products u u, u p, p p.
  std::vector<double> sums(5 * n);
  trainer::together(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < samples.size(); i += static_cast<std::size_t>(world.size())) {
      const auto u = source.targets(samples[i]), v = physical ? universes->physical(samples[i]) : std::vector<double>(n);
      for (std::size_t t = 0; t < n; ++t) {
        const std::array<double, 5> terms{u[t], v[t], u[t] * u[t], u[t] * v[t], v[t] * v[t]};
        for (std::size_t k = 0; k < terms.size(); ++k) sums[k * n + t] += terms[k] / static_cast<double>(samples.size());
      }
    }
  });
  world.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, CombineOp::sum);
  TargetMeans result{.names = p.targets, .means = {sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(n)}};
  for (std::size_t t = 0; t < n; ++t) {
    const auto of = [&](std::size_t k) { return sums[k * n + t]; };
    const double uu = of(2) - of(0) * of(0), up = of(3) - of(0) * of(1), pp = of(4) - of(1) * of(1);
    // Physical units are known only if one line fits all samples, up to float32 rounding; a number that does not vary has no
    // line.
    if (!(uu > 1e-12) || !(pp > 0) || pp - up * up / uu > 1e-6 * pp) {
      result.offset.clear(), result.scale.clear();
      break;
    }
    result.scale.push_back(up / uu), result.offset.push_back(of(1) - up / uu * of(0));
  }
  return result;
}

std::string to_note(const TargetMeans& means) {
  nlohmann::ordered_json document{{"names", means.names}, {"means", means.means}};
  if (!means.scale.empty()) document["offset"] = means.offset, document["scale"] = means.scale;
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<TargetMeans> means_of(const std::string& weights, const CheckpointInfo& info) {
  const auto note = info.notes.find(means_note);
  if (note == info.notes.end()) return std::nullopt;
  TargetMeans means;
  const auto excess = excess_of_json(note->second);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, means_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note->second);
    document.at("names").get_to(means.names);
    document.at("means").get_to(means.means);
    if (document.contains("scale")) document.at("offset").get_to(means.offset), document.at("scale").get_to(means.scale);
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' holds no means of targets", weights, means_note);
  }
  for (const auto* numbers : {&means.means, &means.offset, &means.scale}) {
    const bool finite = std::all_of(numbers->begin(), numbers->end(), [](double x) { return std::isfinite(x); });
    const bool enough = numbers->size() == means.names.size() || (numbers != &means.means && means.scale.empty());
    require(finite && enough, "[weights] {}: the note '{}' holds no means of targets", weights, means_note);
  }
  return means;
}

}  // namespace mpigrad::trainer::program
