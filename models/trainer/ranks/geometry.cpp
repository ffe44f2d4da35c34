#include "models/trainer/ranks/geometry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/text_bounds.h"
#include "framework/engine/activity.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"

namespace mpigrad::trainer {
namespace {

constexpr double tolerance = 0.01;

// The header of a sample, if it is a file of volume_formats.h.
std::optional<data::VolumeHeader> header_of(const data::Source& source, std::int64_t sample) {
  if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source)) return folder->turned_header(sample);
  auto name = source.name_of_sample(sample);
  if (name.ends_with(" [0]")) name.resize(name.size() - 4);  // the name of a file in memory
  std::error_code error;
  if (!data::is_volume(name) || !std::filesystem::is_regular_file(name, error)) return std::nullopt;
  return data::volume_format_of(name).read_header(name);
}

Geometry geometry_of_file(const data::VolumeHeader& header, bool resampled) {
  Geometry result{.orientation = data::orientation_of(header)};
  if (!resampled) result.least = result.most = header.spacing;
  return result;
}

// Calls f(index in the list, geometry) for this rank's share of the samples that are such files.
template <class F>
void for_each_file(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                   bool resampled, F f) {
  const detail::SlowPhase phase;
  trainer::together(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < samples.size(); i += static_cast<std::size_t>(world.size()))
      if (const auto header = header_of(source, samples[i]))
        f(static_cast<std::int64_t>(i), geometry_of_file(*header, resampled));
  });
}

void combine(const Communicator& world, std::int64_t& value, CombineOp op) {
  const auto own = value;
  world.transport().allreduce(&own, &value, 1, DType::int64, op);
}

// Throws on all ranks the text of the rank that read the header at this index of the list.
void fail_at(const Communicator& world, std::int64_t place, const std::function<std::string()>& text) {
  trainer::together(world, [&] {
    if (place % world.size() == world.rank()) throw UsageError(text());
  });
}

std::int64_t number_of(const std::string& letters) {
  std::int64_t number = 0;
  for (const char letter : letters) number = 256 * number + letter;
  return number;
}

std::string letters_of(std::int64_t number) {
  std::string letters;
  for (; number > 0; number /= 256) letters.insert(letters.begin(), static_cast<char>(number % 256));
  return letters;
}

constexpr auto nowhere = std::numeric_limits<std::int64_t>::max();
constexpr const char* way_out = "reorient the volumes (nibabel's as_closest_canonical and FSL's fslreorient2std do)";

}  // namespace

std::string Geometry::text() const {
  std::string spacing;
  for (std::size_t a = 0; a < 3 && least[0] > 0; ++a) {
    const auto range = most[a] > least[a] * (1 + tolerance) ? fmt::format("({:.4g} to {:.4g})", least[a], most[a])
                                                            : fmt::format("{:.4g}", least[a]);
    spacing += (a == 0 ? "" : " x ") + range;
  }
  if (!spacing.empty()) spacing += " mm [z, y, x]";
  if (orientation.empty()) return spacing.empty() ? "unknown" : "no orientation, " + spacing;
  return spacing.empty() ? orientation : fmt::format("{}, {}", orientation, spacing);
}

std::string Geometry::remark() const { return known() ? "; " + text() : ""; }

std::string to_note(const Geometry& g) {
  return nlohmann::ordered_json{{"orientation", g.orientation}, {"least_spacing", g.least}, {"most_spacing", g.most}}.dump();
}

Geometry geometry_of(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                     bool resampled) {
  Geometry result;
  std::array<double, 3> least{}, most{};
  least.fill(std::numeric_limits<double>::infinity());
  // The first file with an orientation, and the first with a different one.
  std::int64_t first = nowhere, orientation = 0, other = nowhere;
  std::vector<std::pair<std::int64_t, std::int64_t>> own;  // index, orientation
  for_each_file(world, source, samples, resampled, [&](std::int64_t place, const Geometry& file) {
    if (!file.orientation.empty()) own.emplace_back(place, number_of(file.orientation)), first = std::min(first, place);
    for (std::size_t a = 0; a < 3; ++a) least[a] = std::min(least[a], file.least[a]), most[a] = std::max(most[a], file.most[a]);
  });
  world.transport().allreduce(least.data(), result.least.data(), 3, DType::float64, CombineOp::min);
  world.transport().allreduce(most.data(), result.most.data(), 3, DType::float64, CombineOp::max);
  if (!(result.most[0] > 0)) result.least = result.most = {};
  combine(world, first, CombineOp::min);
  if (first == nowhere) return result;
  for (const auto& [place, letters] : own)
    if (place == first) orientation = letters;
  combine(world, orientation, CombineOp::max);
  result.orientation = letters_of(orientation);
  std::string found;
  for (const auto& [place, letters] : own)
    if (letters != orientation && other == nowhere) other = place, found = letters_of(letters);
  combine(world, other, CombineOp::min);
  if (other != nowhere)
    fail_at(world, other, [&] {
      return fmt::format("[data] {} is stored {}, {} {}: the volumes of a training have one orientation; {}",
                         source.name_of_sample(samples[static_cast<std::size_t>(first)]), result.orientation,
                         source.name_of_sample(samples[static_cast<std::size_t>(other)]), found, way_out);
    });
  return result;
}

Geometry stated_geometry(const std::string& weights, const CheckpointInfo& info) {
  Geometry g;
  const auto found = info.notes.find(geometry_note);
  if (found == info.notes.end()) return g;
  const auto& note = found->second;
  const auto excess = excess_of_json(note);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, geometry_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note);
    document.at("orientation").get_to(g.orientation);
    document.at("least_spacing").get_to(g.least), document.at("most_spacing").get_to(g.most);
  } catch (const nlohmann::ordered_json::exception&) {
    g.least.fill(-1);
  }
  bool known = g.orientation.empty() || data::is_orientation(g.orientation);
  for (std::size_t a = 0; a < 3; ++a) known = known && g.least[a] >= 0 && g.least[a] <= g.most[a] && std::isfinite(g.most[a]);
  require(known, "[weights] {}: the note '{}' is no orientation and spacing", weights, geometry_note);
  return g;
}

void require_same_geometry(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                           const data::Source& source, const std::vector<std::int64_t>& samples, bool resampled) {
  Geometry trained, example;
  trainer::together(world, [&] { trained = stated_geometry(weights, info); });
  // The first file that differs, that says no orientation, that says one, and the first file.
  std::int64_t differs = nowhere, unknown = nowhere, oriented = nowhere, known = nowhere;
  const auto other_spacing = [&](const Geometry& file) {
    if (!(trained.least[0] > 0) || !(file.least[0] > 0)) return false;
    for (std::size_t a = 0; a < 3; ++a)
      if (file.least[a] < trained.least[a] * (1 - tolerance) || file.most[a] > trained.most[a] * (1 + tolerance)) return true;
    return false;
  };
  for_each_file(world, source, samples, resampled, [&](std::int64_t place, const Geometry& file) {
    known = std::min(known, place);
    const bool turned = !trained.orientation.empty() && !file.orientation.empty() && trained.orientation != file.orientation;
    if ((turned || other_spacing(file)) && place < differs) differs = place, example = file;
    if (!trained.orientation.empty() && file.orientation.empty()) unknown = std::min(unknown, place);
    if (!file.orientation.empty()) oriented = std::min(oriented, place);
  });
  for (auto* place : {&differs, &unknown, &oriented, &known}) combine(world, *place, CombineOp::min);
  const auto name = [&](std::int64_t place) { return source.name_of_sample(samples[static_cast<std::size_t>(place)]); };
  if (differs != nowhere)
    fail_at(world, differs, [&] {
      const bool turned =
          trained.orientation != example.orientation && !example.orientation.empty() && !trained.orientation.empty();
      return fmt::format("[data] {} is stored {}, {} was trained on {}: {}", name(differs), example.text(), weights,
                         trained.text(),
                         turned ? way_out : "resample the volume, or train with data.spacing, which resamples all volumes");
    });
  if (world.rank() != 0 || samples.empty()) return;
  if (known != nowhere && !trained.known())
    fmt::print(stderr,
               "warning: {} knows neither orientation nor spacing of the volumes that it was trained on: those of {} and others "
               "are not compared\n",
               weights, name(known));
  else if (trained.orientation.empty() && oriented != nowhere)
    fmt::print(stderr,
               "warning: {} does not know the orientation of the volumes that it was trained on: that of {} and others is not "
               "compared\n",
               weights, name(oriented));
  else if (unknown != nowhere)
    fmt::print(stderr, "warning: {} does not say its orientation; {} was trained on {}\n", name(unknown), weights,
               trained.text());
  else if (known == nowhere && trained.known())
    fmt::print(stderr, "warning: {} says neither orientation nor spacing; {} was trained on {}\n", name(0), weights,
               trained.text());
}

}  // namespace mpigrad::trainer
