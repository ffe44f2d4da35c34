#include "models/data/volumes/cases.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> volumes_in(const fs::path& folder) {
  std::error_code error;
  if (is_volume(folder) && fs::is_regular_file(folder, error)) return {folder};
  require(fs::is_directory(folder, error), "[data] {}: not a folder of volumes ({})", folder.string(), volume_patterns());
  fs::directory_iterator iterator(folder, error);
  require(!error, "[data] {}: the folder cannot be read: {}", folder.string(), error.message());
  std::vector<fs::path> files;
  for (const auto& entry : iterator)
    if (is_volume(entry.path()) && entry.path().filename().string().front() != '.') files.push_back(entry.path());
  require(!files.empty(), "[data] {}: no volumes ({}) in this folder", folder.string(), volume_patterns());
  std::sort(files.begin(), files.end());
  return files;
}

constexpr std::size_t digits = 4;

// "_0000" and so on at the end of a name.
std::optional<int> channel_of(const std::string& stem) {
  if (stem.size() <= digits + 1 || stem[stem.size() - digits - 1] != '_') return std::nullopt;
  int channel = 0;
  for (std::size_t i = stem.size() - digits; i < stem.size(); ++i) {
    if (stem[i] < '0' || stem[i] > '9') return std::nullopt;
    channel = 10 * channel + (stem[i] - '0');
  }
  return channel;
}

std::string without_channel(const std::string& stem) { return stem.substr(0, stem.size() - digits - 1); }

}  // namespace

VolumeCases volume_cases(const fs::path& images, const fs::path& labels, bool channel_files) {
  VolumeCases result;
  std::map<std::string, fs::path> labels_by_name;
  if (!labels.empty())
    for (const auto& path : volumes_in(labels)) labels_by_name.emplace(volume_stem(path), path);
  const auto files = volumes_in(images);
  result.channel_files = channel_files;
  if (!labels.empty()) {
    bool own = false, shared = false;
    for (const auto& path : files) {
      const auto stem = volume_stem(path);
      own = own || labels_by_name.contains(stem);
      shared = shared || (channel_of(stem) && labels_by_name.contains(without_channel(stem)));
    }
    result.channel_files = shared && !own;
  }
  std::map<std::string, std::map<int, fs::path>> channels;
  for (const auto& path : files) {
    const auto stem = volume_stem(path);
    const auto channel = channel_of(stem);
    if (!result.channel_files) {
      result.cases.push_back({.name = stem, .images = {path}});
    } else if (!channel) {
      result.problems.push_back(fmt::format("{} has no number of its channel, as {}_0000 has", path.string(), stem));
    } else if (const auto [found, fresh] = channels[without_channel(stem)].emplace(*channel, path); !fresh) {
      result.problems.push_back(fmt::format("{} and {} are the same channel", found->second.string(), path.string()));
    }
  }
  std::size_t most = 0;
  for (const auto& [name, of_case] : channels) most = std::max(most, of_case.size());
  for (const auto& [name, of_case] : channels) {
    auto& added = result.cases.emplace_back(VolumeCase{.name = name});
    for (const auto& [channel, path] : of_case) added.images.push_back(path);
    for (int channel = 0; channel < static_cast<int>(most); ++channel)
      if (!of_case.contains(channel))
        result.problems.push_back(
            fmt::format("{} has no file {}_{:04} of channel {}", (images / name).string(), name, channel, channel));
  }
  for (auto& each : result.cases) {
    if (labels.empty()) continue;
    const auto found = labels_by_name.find(each.name);
    if (found == labels_by_name.end()) {
      result.problems.push_back(
          fmt::format("{} has no labels: there is no such file in {}", each.images.front().string(), labels.string()));
      continue;
    }
    each.labels = found->second;
    labels_by_name.erase(found);
  }
  for (const auto& [name, path] : labels_by_name) result.unused.push_back(path);
  return result;
}

}  // namespace mpigrad::data
