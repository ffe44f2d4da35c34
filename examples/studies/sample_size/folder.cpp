// The folder of a study: its owner, and its finished parts.

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "comm/hdf5/hdf5_file.h"
#include "examples/studies/sample_size/study.h"
#include "examples/tools/universe/simulation.h"
#include "models/data/sources/hdf5.h"
#include "models/trainer/folder/folder_lock.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::sample_size {
namespace {

namespace fs = std::filesystem;
using tool::UsageError;

constexpr const char *study_file = "study.txt", *predictions_file = "predictions.csv", *training_file = "training.csv",
                     *universes_folder = "universes";

std::string text_of(const fs::path& path) {
  if (std::error_code none; !fs::is_regular_file(path, none)) return {};  // opening a pipe would wait for a writer
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
bool parse(const std::string& text, std::string& value) {
  value = text;
  return !text.empty();
}

// Calls f(name, value) for everything that determines the results.
template <class Options, class F>
void for_each_decision(Options& o, F&& f) {
  f("network", o.network), f("box", o.box), f("cell", o.cell), f("training universes", o.training), f("test universes", o.test);
  f("epochs", o.epochs), f("learning rate", o.learning_rate), f("seed of the universes", o.seed),
      f("universes in a step", o.universes_in_step);
}

// 16 and 2 for "size016-seed2".
std::optional<std::pair<std::int64_t, std::int64_t>> training_of(const std::string& folder) {
  const auto middle = folder.find("-seed");
  std::pair<std::int64_t, std::int64_t> result;
  if (!folder.starts_with("size") || middle == std::string::npos || !parse(folder.substr(4, middle - 4), result.first) ||
      !parse(folder.substr(middle + 5), result.second) || folder != folder_of(result.first, result.second))
    return std::nullopt;
  return result;
}

}  // namespace

std::string describe(const StudyOptions& o) {
  std::string text;
  for_each_decision(o, [&](const char* name, const auto& value) { text += fmt::format("{} {}\n", name, value); });
  return text;
}

std::string folder_of(std::int64_t size, std::int64_t seed) { return fmt::format("size{:03}-seed{}", size, seed); }
fs::path predictions_of(const StudyOptions& o, std::int64_t size, std::int64_t seed) {
  return fs::path(o.out) / folder_of(size, seed) / predictions_file;
}

fs::path regression_of(const StudyOptions& o, std::int64_t size) {
  return fs::path(o.out) / fmt::format("size{:03}-regression", size) / predictions_file;
}

fs::path training_predictions(const fs::path& predictions) { return predictions.parent_path() / training_file; }

namespace {

fs::path universe_of(const StudyOptions& o, std::int64_t i) {
  return fs::path(o.out) / universes_folder / universe::file_name(static_cast<std::uint64_t>(i));
}

void check_universe(const StudyOptions& o, std::int64_t i) {
  const auto file = universe_of(o, i);
  const universe::Simulation simulation{.size = o.box, .cell = o.cell, .seed = o.seed};
  const auto refuse = [&](const char* name, const auto& value) {
    throw UsageError(fmt::format("{} is of another simulation: its {} is not {}; without that file it is made anew",
                                 file.string(), name, value));
  };
  const Hdf5Reader reader(file);
  for (const auto& [name, value] : {std::pair{"universe", static_cast<double>(i)},
                                    {"seed", static_cast<double>(simulation.seed)},
                                    {"cell", simulation.cell},
                                    {"box", simulation.cell * static_cast<double>(simulation.size)},
                                    {"order", simulation.order}})
    if (!reader.has_attribute("/", name) || reader.number_attribute("/", name) != value) refuse(name, fmt::format("{:g}", value));
  const auto power = name_of(simulation.spectrum);
  if (!reader.has_attribute("/", "power") || reader.text_attribute("/", "power") != power) refuse("power", power);
}

}  // namespace

void claim_folder(const StudyOptions& o) {
  std::error_code error;
  const auto file = fs::path(o.out) / study_file;
  if (fs::exists(o.out, error) && !fs::is_directory(o.out, error))
    throw UsageError(fmt::format("--out {}: it is no folder", o.out));
  if (fs::exists(file, error)) {
    if (const auto there = text_of(file); there != describe(o))
      throw UsageError(fmt::format("--out {} is of another study; there:\n{}and now:\n{}Another --out, or these options", o.out,
                                   there, describe(o)));
    return;
  }
  if (tool::has_files(o.out, universes_folder))
    throw UsageError(fmt::format("--out {} has files, and they are of no study", o.out));
  for (std::int64_t i = 0; i < o.training + o.test; ++i)
    if (fs::exists(universe_of(o, i), error)) check_universe(o, i);
  fs::create_directories(o.out, error);
  require(fs::is_directory(o.out), "[sample_size] the folder {} cannot be made: {}", o.out, error.message());
  trainer::write_text(file, describe(o));
}

void read_study(StudyOptions& o) {
  const auto file = fs::path(o.out) / study_file;
  const auto text = text_of(file);
  if (text.empty()) throw UsageError(fmt::format("--out {}: it is no folder of a study, which has {}", o.out, study_file));
  std::size_t at = 0;
  for_each_decision(o, [&](const std::string& name, auto& value) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    require(line.starts_with(name + " ") && parse(line.substr(name.size() + 1), value),
            "[sample_size] {}: '{}' is no {}; the study is of another version", file.string(), line, name);
    at = std::min(end + 1, text.size());
  });
}

void check_universes(const StudyOptions& o, std::int64_t part, std::int64_t parts) {
  const auto folder = fs::path(o.out) / universes_folder;
  const auto files = data::hdf5_files(folder);
  const auto count = o.training + o.test;
  require(static_cast<std::int64_t>(files.size()) >= count, "[sample_size] {} has {} universes, {} are needed", folder.string(),
          files.size(), count);
  for (std::int64_t i = part; i < count; i += parts) {
    const auto& file = files[static_cast<std::size_t>(i)];
    if (file.filename() != universe_of(o, i).filename())
      throw UsageError(fmt::format("{} is among the universes of the study, and is none of them", file.string()));
    check_universe(o, i);
  }
}

std::vector<std::int64_t> sizes_done(const StudyOptions& o) {
  std::set<std::int64_t> sizes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(o.out, error))
    if (const auto training = training_of(entry.path().filename().string()))
      if (fs::exists(entry.path() / predictions_file, error)) sizes.insert(training->first);
  return {sizes.begin(), sizes.end()};
}

std::vector<std::int64_t> seeds_done(const StudyOptions& o) {
  std::map<std::int64_t, std::size_t> done;  // by seed, for how many of the sizes
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(o.out, error)) {
    const auto training = training_of(entry.path().filename().string());
    if (!training || !fs::exists(entry.path() / predictions_file, error)) continue;
    if (std::find(o.sizes.begin(), o.sizes.end(), training->first) != o.sizes.end()) ++done[training->second];
  }
  std::vector<std::int64_t> seeds;
  for (const auto& [seed, sizes] : done)
    if (sizes == o.sizes.size()) seeds.push_back(seed);
  return seeds;
}

}  // namespace mpigrad::sample_size
