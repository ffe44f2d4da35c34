#include "examples/tools/weights/names.h"

#include <algorithm>
#include <regex>

#include "ops/views/views.h"

namespace mpigrad::weights {
namespace {

struct Name {
  std::string group, layer, last;  // "parameters/", "stage1.block1.conv1", "weight"
};

Name parts_of(const std::string& name) {
  const auto slash = name.find('/') + 1;
  const auto dot = name.rfind('.');
  if (dot == std::string::npos || dot < slash) return {name.substr(0, slash), "", name.substr(slash)};
  return {name.substr(0, slash), name.substr(slash, dot - slash), name.substr(dot + 1)};
}

std::string last_of(const std::string& ours) {
  if (ours == "gamma") return "weight";
  if (ours == "beta") return "bias";
  if (ours == "running_variance") return "running_var";
  return ours;
}

// torchvision's name for a ResNet's layer.
std::string resnet_layer(const std::string& ours) {
  static const std::regex block(R"(^(.*\b)?stage(\d+)\.block(\d+)\.(conv|norm)(\d+|_shortcut)$)");
  std::smatch m;
  if (std::regex_match(ours, m, block)) {
    const auto number = std::stoi(m[3].str()) - 1;
    const bool conv = m[4] == "conv";
    const auto part =
        m[5] == "_shortcut" ? fmt::format("downsample.{}", conv ? 0 : 1) : fmt::format("{}{}", conv ? "conv" : "bn", m[5].str());
    return fmt::format("{}layer{}.{}.{}", m[1].str(), m[2].str(), number, part);
  }
  static const std::regex stem(R"(^(.*\b)?norm(\d+)$)");
  if (std::regex_match(ours, m, stem)) return fmt::format("{}bn{}", m[1].str(), m[2].str());
  static const std::regex classifier(R"(^(.*\b)?classifier$)");
  if (std::regex_match(ours, m, classifier)) return m[1].str() + "fc";
  return ours;
}

}  // namespace

std::vector<NamePair> pytorch_names(const std::vector<NamedTensor>& network) {
  const bool resnet = std::any_of(network.begin(), network.end(), [](const auto& tensor) {
    return tensor.name.find("stage1.block1.conv1.weight") != std::string::npos;
  });
  // The channels of the last convolution, in the natural order of names, where conv10 comes after conv9.
  std::int64_t channels = 0;
  const auto natural = [](const std::string& name) {
    std::string key;
    for (std::size_t i = 0; i < name.size();) {
      auto end = i;
      while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
      if (end > i) key += std::string(12 - std::min<std::size_t>(12, end - i), '0') + name.substr(i, end - i), i = end;
      else key += name[i++];
    }
    return key;
  };
  std::string last, first;
  for (const auto& tensor : network)
    if (tensor.value.rank() == 5 && natural(tensor.name) >= natural(last)) last = tensor.name, channels = tensor.value.dim(0);
  for (const auto& tensor : network)
    if (tensor.value.rank() == 2 && (first.empty() || natural(tensor.name) < natural(first))) first = tensor.name;

  std::vector<NamePair> pairs;
  for (const auto& [name, value] : network) {
    const auto parts = parts_of(name);
    const auto layer = resnet ? resnet_layer(parts.layer) : parts.layer;
    NamePair pair{name, (layer.empty() ? "" : layer + ".") + last_of(parts.last), value.shape()};
    const auto& s = value.shape();
    if (value.rank() == 5) {
      pair.split = s, pair.order = {0, 4, 1, 2, 3};
      pair.shape = Shape{s[0], s[4], s[1], s[2], s[3]};
      if (resnet && s[1] == 1) pair.shape = Shape{s[0], s[4], s[2], s[3]};
    } else if (name == first && channels > 0 && s[1] > channels && s[1] % channels == 0) {
      pair.split = {s[0], s[1] / channels, channels}, pair.order = {0, 2, 1};
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Tensor to_pytorch(const NamePair& pair, const Tensor& ours) {
  const Untaped scope;
  if (pair.order.empty()) return ours;
  return reshape(permute(reshape(constant(ours), pair.split), pair.order), pair.shape);
}

Tensor from_pytorch(const NamePair& pair, const Tensor& theirs, const Shape& ours) {
  const Untaped scope;
  require(theirs.shape() == pair.shape, "[weights] '{}' is {}, {} would be {}", pair.theirs, theirs.shape(), pair.ours,
          pair.shape);
  if (pair.order.empty()) return theirs;
  std::vector<std::int64_t> permuted(pair.order.size());
  std::vector<int> back(pair.order.size());
  for (std::size_t i = 0; i < pair.order.size(); ++i) {
    permuted[i] = pair.split[pair.order[i]];
    back[static_cast<std::size_t>(pair.order[i])] = static_cast<int>(i);
  }
  return reshape(permute(reshape(constant(theirs), Shape(permuted)), back), ours);
}

}  // namespace mpigrad::weights
