#include "models/trainer/segmentation/findings.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "framework/base/job_queue.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volume_formats.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void to_json(Json& json, const CaseFindings& f) {
  std::vector<std::int64_t> extents(f.extents.begin(), f.extents.end());
  json = {{"name", f.name},       {"problems", f.problems},       {"read", f.read},
          {"extents", extents},   {"channels", f.channels},       {"bytes", f.bytes},
          {"spacing", f.spacing}, {"orientation", f.orientation}, {"hash", f.hash}};
  for (const auto& [label, of] : f.labels) json["labels"].push_back({label, of.cells, of.means, of.variances});
  json["finite"] = f.finite, json["nonzero"] = f.nonzero, json["samples"] = f.samples;
}

void from_json(const Json& json, CaseFindings& f) {
  json.at("name").get_to(f.name), json.at("problems").get_to(f.problems), json.at("read").get_to(f.read);
  f.extents = {};
  for (const auto& extent : json.at("extents")) f.extents.push_back(extent.get<std::int64_t>());
  json.at("channels").get_to(f.channels), json.at("bytes").get_to(f.bytes), json.at("spacing").get_to(f.spacing);
  json.at("orientation").get_to(f.orientation), json.at("hash").get_to(f.hash);
  if (json.contains("labels"))
    for (const auto& entry : json.at("labels")) {
      auto& of = f.labels[entry.at(0).get<std::int64_t>()];
      entry.at(1).get_to(of.cells), entry.at(2).get_to(of.means), entry.at(3).get_to(of.variances);
    }
  json.at("finite").get_to(f.finite), json.at("nonzero").get_to(f.nonzero), json.at("samples").get_to(f.samples);
}

namespace {

// The message of an error without the part in brackets at its beginning.
std::string text_of(const std::exception& error) {
  const std::string text = error.what();
  const auto end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

std::string place_of(std::int64_t cell, const Shape& e) {
  return fmt::format("[{}, {}, {}] [z, y, x]", cell / e[2] / e[1], cell / e[2] % e[1], cell % e[2]);
}

// Problems of values [D, H, W, C].
void examine(const std::string& name, const std::vector<float>& values, const Shape& extents, std::int64_t channels,
             CaseFindings& f) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < count; ++i)
    if (!std::isfinite(values[static_cast<std::size_t>(i)]) && wrong++ == 0) first = i;
  f.finite = f.finite && wrong == 0;
  if (wrong > 0)
    f.problems.push_back(fmt::format("{}: {} values are not finite, the first at {} is {}", name, wrong,
                                     place_of(first / channels, extents), values[static_cast<std::size_t>(first)]));
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto value = values[static_cast<std::size_t>(c)];
    bool constant = true;
    for (auto i = c; i < count && constant; i += channels) constant = values[static_cast<std::size_t>(i)] == value;
    if (constant)
      f.problems.push_back(
          fmt::format("{}: every value{} is {}", name, channels > 1 ? fmt::format(" of channel {}", c) : "", value));
  }
}

// Takes what is known of the cells; their values only if all of them are known and finite.
void describe_labels(const CellValues& cells, bool same_cells, std::int64_t samples, CaseFindings& f) {
  f.labels = cells.by_label();
  if (!same_cells || !f.read || !f.finite || !cells.complete()) {
    for (auto& [label, of] : f.labels) of.means.clear(), of.variances.clear();
    return;
  }
  if (samples > 0) f.nonzero = cells.nonzero(), f.samples = cells.samples();
}

// A spacing (pixdim of NIfTI) that is not the length of the steps of the affine map.
void compare_spacing(const std::string& name, const data::VolumeHeader& header, CaseFindings& f) {
  if (const auto text = data::spacing_difference(header); !text.empty()) f.problems.push_back(name + " says " + text);
}

std::int64_t bytes_of(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

// Calls f; an error becomes a problem. True: no error.
template <class F>
bool tried(CaseFindings& findings, F f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    findings.problems.push_back(printable(text_of(error)));
  }
  return false;
}

}  // namespace

CaseFindings findings_of(const data::VolumeCase& files, const data::LabelRules& rules, std::int64_t samples) {
  CaseFindings f{.name = printable(files.images.front().string())}, of_labels;
  // Labels are read first: then the values of one file at a time are in memory.
  const auto labels_name = printable(files.labels.string());
  data::VolumeLabels labels;
  const bool labelled =
      !files.labels.empty() && tried(of_labels, [&] { labels = data::volume_format_of(files.labels).read_labels(files.labels); });
  const bool ruled = labelled && tried(of_labels, [&] { rules.apply(labels.values, labels_name); });
  std::optional<CellValues> cells;
  if (ruled) cells.emplace(labels.values, labels.header.extents, samples);
  data::VolumeHeader header;
  f.read = true;
  for (const auto& path : files.images) {
    f.bytes += bytes_of(path);
    const auto name = printable(path.string());
    f.read = tried(f,
                   [&] {
                     const auto volume = data::volume_format_of(path).read_values(path);
                     const auto& h = volume.header;
                     compare_spacing(name, h, f);
                     if (f.channels == 0) header = h;
                     else if (const auto apart = difference(header, h); !apart.empty())
                       f.problems.push_back(fmt::format("{} and {} do not have the same cells: {}", f.name, name, apart));
                     f.channels += h.channels;
                     f.hash = f.hash * 3 + hash_of_values(h.extents, h.channels, DType::float32, volume.values.data(), 0,
                                                          static_cast<std::int64_t>(volume.values.size()));
                     examine(name, volume.values, h.extents, h.channels, f);
                     if (cells) cells->add(volume.values, h.channels);
                   }) &&
             f.read;
  }
  if (f.read) f.extents = header.extents, f.spacing = header.spacing, f.orientation = data::orientation_of(header);
  if (files.labels.empty()) return f;
  f.bytes += bytes_of(files.labels);
  const auto apart = labelled && f.read ? difference(header, labels.header) : std::string();
  if (!apart.empty())
    f.problems.push_back(fmt::format("{} and its labels {} do not have the same cells: {}", f.name, labels_name, apart));
  f.problems.insert(f.problems.end(), of_labels.problems.begin(), of_labels.problems.end());
  if (cells) describe_labels(*cells, apart.empty(), samples, f);
  return f;
}

CaseFindings findings_of(const data::Source& source, std::int64_t sample, std::int64_t samples) {
  CaseFindings f{.name = source.name_of_sample(sample)};
  const auto box = source.whole_of(sample);
  std::vector<float> values;
  f.read = tried(f, [&] {
    const auto channels = source.channels(), count = box.elements() * channels;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(source.type())));
    source.queue().run([&] { source.read(sample, box, bytes.data()); });
    values.resize(static_cast<std::size_t>(count));
    data::convert(bytes.data(), source.type(), count, DType::float32, values.data());
    f.extents = box.extents(), f.channels = channels, f.bytes = static_cast<std::int64_t>(bytes.size());
    f.hash = hash_of_values(f.extents, channels, DType::float32, values.data(), 0, count);
    examine(f.name, values, f.extents, channels, f);
  });
  if (!source.target_type().per_cell) return f;
  tried(f, [&] {
    const auto type = source.target_type().type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(box.elements() * size_of(type)));
    source.queue().run([&] { source.read_targets(sample, box, bytes.data()); });
    std::vector<std::int32_t> labels(static_cast<std::size_t>(box.elements()));
    visit_stored(type, [&](auto zero) {
      const auto* from = reinterpret_cast<const decltype(zero)*>(bytes.data());
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto label = static_cast<double>(from[i]);
        require(label >= -1 && label <= 0x1p31 - 1, "[data] {}: a label is {}", f.name, label);
        labels[i] = static_cast<std::int32_t>(from[i]);
      }
    });
    f.bytes += static_cast<std::int64_t>(bytes.size());
    CellValues cells(labels, box.extents(), samples);
    if (f.read) cells.add(values, source.channels());
    describe_labels(cells, true, samples, f);
  });
  return f;
}

namespace {

template <class T>
std::map<T, std::int64_t> counts_of(const std::vector<CaseFindings>& cases, T CaseFindings::*member) {
  std::map<T, std::int64_t> counts;
  for (const auto& each : cases)
    if (each.read) ++counts[each.*member];
  return counts;
}

// The number of channels that most cases have.
std::int64_t usual_channels(const std::map<std::int64_t, std::int64_t>& cases) {
  const auto most =
      std::max_element(cases.begin(), cases.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == cases.end() ? 0 : most->first;
}

// Cells and cases of each label, and the values where they are known.
struct LabelTotals {
  std::int64_t cells = 0, cases = 0, known = 0;
  LabelValues values{};
};
std::map<std::int64_t, LabelTotals> labels_of(const std::vector<CaseFindings>& cases) {
  std::map<std::int64_t, LabelTotals> all;
  const auto channels = static_cast<std::size_t>(usual_channels(counts_of(cases, &CaseFindings::channels)));
  for (const auto& each : cases)
    for (const auto& [label, of] : each.labels) {
      auto& total = all[label];
      total.cells += of.cells, ++total.cases;
      if (channels > 0 && of.means.size() == channels) total.values.add(of), ++total.known;
    }
  return all;
}

void compare_labels(const std::vector<CaseFindings>& cases, const DatasetFile& dataset, const std::string& data,
                    std::vector<std::string>& problems) {
  const auto all = labels_of(cases);
  if (all.empty()) return;
  std::vector<std::int64_t> labels;
  for (const auto& [label, total] : all)
    if (label >= 0) labels.push_back(label);
  if (dataset.classes > 0) {
    for (const auto& each : cases)
      if (!each.labels.empty() && each.labels.rbegin()->first >= dataset.classes)
        problems.push_back(fmt::format("the labels of {} have a {}, {} has {} classes", each.name, each.labels.rbegin()->first,
                                       dataset.path.string(), dataset.classes));
  } else if (const auto gaps = label_gaps(labels, data); !gaps.empty()) {
    problems.push_back(gaps);
  }
  if (labels.empty() || labels.back() == 0) problems.push_back(fmt::format("no cell of {} has a label above 0", data));
}

}  // namespace

std::vector<std::string> findings_between(const std::vector<CaseFindings>& cases, const DatasetFile& dataset,
                                          const std::string& data) {
  std::vector<std::string> problems;
  const auto channels = counts_of(cases, &CaseFindings::channels);
  const auto orientations = counts_of(cases, &CaseFindings::orientation);
  const auto most = usual_channels(channels);
  const bool oriented = orientations.size() > 1;
  std::unordered_map<std::uint64_t, const CaseFindings*> seen;
  for (const auto& each : cases) {
    if (!each.read) continue;
    if (each.channels != most)
      problems.push_back(fmt::format("{} has {} channels, most volumes have {}", each.name, each.channels, most));
    if (each.orientation.empty() && oriented)
      problems.push_back(fmt::format("{} does not say its orientation, others do", each.name));
    if (const auto [other, fresh] = seen.try_emplace(each.hash, &each); !fresh)
      problems.push_back(fmt::format("{} has the same values as {}", each.name, other->second->name));
  }
  const auto size = static_cast<std::int64_t>(cases.size());
  if (dataset.images > 0 && dataset.images != size)
    problems.push_back(fmt::format("{} says {} volumes, there are {}", dataset.path.string(), dataset.images, size));
  if (dataset.channels > 0 && !channels.empty() && dataset.channels != most)
    problems.push_back(fmt::format("{} says {} channels, the volumes have {}", dataset.path.string(), dataset.channels, most));
  compare_labels(cases, dataset, data, problems);
  return problems;
}

std::vector<std::string> description_of(const std::vector<CaseFindings>& cases) {
  std::vector<std::string> lines;
  std::array<double, 3> least{}, most{}, smallest{}, largest{};
  std::int64_t count = 0;
  for (const auto& each : cases) {
    if (!each.read) continue;
    for (std::size_t a = 0; a < 3; ++a) {
      const auto extent = static_cast<double>(each.extents[static_cast<int>(a)]);
      least[a] = count == 0 ? each.spacing[a] : std::min(least[a], each.spacing[a]), most[a] = std::max(most[a], each.spacing[a]);
      smallest[a] = count == 0 ? extent : std::min(smallest[a], extent), largest[a] = std::max(largest[a], extent);
    }
    ++count;
  }
  if (count == 0) return lines;
  const auto range = [](const std::array<double, 3>& low, const std::array<double, 3>& high) {
    std::vector<std::string> parts;
    for (std::size_t a = 0; a < 3; ++a)
      parts.push_back(low[a] == high[a] ? fmt::format("{:.4g}", low[a]) : fmt::format("({:.4g} to {:.4g})", low[a], high[a]));
    return joined(parts, " x ");
  };
  lines.push_back(fmt::format("extents {} cells [z, y, x], {} channels", range(smallest, largest),
                              usual_channels(counts_of(cases, &CaseFindings::channels))));
  if (least[0] > 0) lines.push_back(fmt::format("spacing {} mm [z, y, x]", range(least, most)));
  std::vector<std::string> orientations;
  for (const auto& [letters, files] : counts_of(cases, &CaseFindings::orientation))
    orientations.push_back(fmt::format("{} of {} volumes", letters.empty() ? "unknown" : letters, files));
  lines.push_back("orientation " + joined(orientations, ", "));
  const auto all = labels_of(cases);
  double cells = 0;
  for (const auto& [label, total] : all) cells += static_cast<double>(total.cells);
  constexpr std::size_t most_lines = 120;
  for (const auto& [label, total] : all) {
    if (lines.size() >= most_lines) {
      lines.push_back(fmt::format("{} labels in all", all.size()));
      break;
    }
    std::vector<std::string> values;
    for (std::size_t c = 0; c < total.values.means.size(); ++c)
      values.push_back(fmt::format("{:.4g} ({:.4g})", total.values.means[c], std::sqrt(total.values.variances[c])));
    const auto some = total.known == total.cases ? std::string() : fmt::format(" in {} of them", total.known);
    lines.push_back(fmt::format("{} {:.4g} % of the cells, in {} volumes{}",
                                label == data::ignored_label ? "ignored labels:" : fmt::format("label {}:", label),
                                100 * static_cast<double>(total.cells) / cells, total.cases,
                                values.empty() ? "" : fmt::format("; mean (deviation){}: {}", some, joined(values, ", "))));
  }
  return lines;
}

}  // namespace mpigrad::trainer::segmenting
