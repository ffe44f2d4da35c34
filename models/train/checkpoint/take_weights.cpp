#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <optional>

#include "framework/base/printable.h"
#include "framework/engine/activity.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad {
namespace {

using namespace checkpoint_file;

// "parameters/conv1.weight": the group, and the name that is compared with patterns.
std::pair<std::string, std::string> parts_of(const std::string& tensor) {
  const auto slash = tensor.find('/') + 1;
  return {tensor.substr(0, slash), tensor.substr(slash)};
}

// The name in the file of the tensor that is called `name` in the network.
std::string name_in_file(const TakeOptions::Pattern& pattern, const std::string& name) {
  if (pattern.file.empty()) return name;
  const auto from = pattern.network.find('*'), to = pattern.file.find('*');
  if (to == std::string::npos) return pattern.file;
  const auto behind = pattern.network.size() - from - 1;
  return pattern.file.substr(0, to) + name.substr(from, name.size() - from - behind) + pattern.file.substr(to + 1);
}

void check(const TakeOptions::Pattern& pattern) {
  const auto count = [](const std::string& text) { return std::count(text.begin(), text.end(), '*'); };
  require(pattern.file.empty() || (pattern.network.find_first_of("?[") == std::string::npos &&
                                   count(pattern.network) == count(pattern.file) && count(pattern.file) <= 1),
          "[checkpoint] '{}' for '{}': names in a file have as many * as those in the network, at most one, and no other pattern",
          pattern.file, pattern.network);
}

}  // namespace

TakenWeights take_weights(const std::filesystem::path& path, nn::Module& net, const TakeOptions& options) {
  const detail::SlowPhase phase;
  const Hdf5Reader file(path);
  const auto info = read_info(file);
  std::map<std::string, Hdf5Dataset> datasets;
  for (auto& dataset : file.datasets())
    if (dataset.name.starts_with("parameters/") || dataset.name.starts_with("buffers/")) datasets.emplace(dataset.name, dataset);
  const auto& patterns = options.patterns;
  for (const auto& pattern : patterns) check(pattern);
  std::vector<bool> used(patterns.size());
  TakenWeights result;
  std::vector<std::pair<Tensor, Tensor>> to_give;
  std::map<std::string, bool> taken_from;
  const auto tensors = network_tensors(net);
  for (const auto& [whole_name, value] : tensors) {
    const auto [folder, name] = parts_of(whole_name);
    auto in_file = whole_name;
    if (!patterns.empty()) {
      const auto found = std::find_if(patterns.begin(), patterns.end(), [&, &name = name](const auto& p) {
        return fnmatch(p.network.c_str(), name.c_str(), 0) == 0;
      });
      if (found == patterns.end()) {
        result.left.push_back(name);
        continue;
      }
      used[static_cast<std::size_t>(found - patterns.begin())] = true;
      in_file = folder + name_in_file(*found, name);
    }
    const auto dataset = datasets.find(in_file);
    const bool there = dataset != datasets.end();
    if (patterns.empty() && (!there || !fits(dataset->second, value))) {
      result.left.push_back(name);
      continue;
    }
    require(there, "[checkpoint] {} has no {}, which is requested for {}", path.string(), in_file, value);
    require(fits(dataset->second, value), "[checkpoint] {} in {} is {} {}, the network's {} is {} {}", in_file, path.string(),
            dataset->second.stored, dataset->second.shape, name, name_of(value.dtype()), global_shape(value));
    to_give.emplace_back(value, read_tensor(file, {in_file, value}, info.verified));
    taken_from[in_file] = true;
    result.taken.push_back(name);
  }
  for (std::size_t i = 0; i < patterns.size(); ++i)
    require(used[i], "[checkpoint] the network has nothing that is called '{}'", patterns[i].network);
  for (const auto& [name, dataset] : datasets)
    if (!taken_from.contains(name)) result.unused.push_back(printable(parts_of(name).second));
  for (const auto& [to, values] : to_give) give(to, values);
  return result;
}

}  // namespace mpigrad
