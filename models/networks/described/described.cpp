#include "models/networks/described/described.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "framework/base/joined.h"
#include "models/networks/classifier.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/picture_classifiers.h"
#include "models/networks/residual_unet3d.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"

namespace mpigrad {
namespace {

using Setting = NetworkDescription::Setting;
using Names = std::vector<std::string>;

void require_known(const NetworkDescription& d, const Names& known) {
  for (const auto& [name, value] : d.settings)
    require(std::find(known.begin(), known.end(), name) != known.end(), "[network] {} has no setting '{}', only {}", d.name, name,
            joined(known, ", "));
}

template <class T>
T setting(const NetworkDescription& d, const std::string& name, const T& otherwise) {
  const auto found = d.settings.find(name);
  if (found == d.settings.end()) return otherwise;
  const auto* value = std::get_if<T>(&found->second);
  require(value != nullptr, "[network] the setting '{}' of {} has another type", name, d.name);
  return *value;
}

// The value that a setting names; `otherwise` if there is no setting, or an empty one.
template <class T>
T choice(const NetworkDescription& d, const std::string& name, const T& otherwise, const std::map<std::string, T>& choices) {
  const auto value = setting<std::string>(d, name, "");
  if (value.empty()) return otherwise;
  const auto found = choices.find(value);
  Names names;
  for (const auto& each : choices) names.push_back(each.first);
  require(found != choices.end(), "[network] the setting '{}' of {} is one of {}, not '{}'", name, d.name, joined(names, ", "),
          value);
  return found->second;
}

PaddingMode padding_of(const NetworkDescription& d) { return padding_mode(setting<std::string>(d, "padding", "zeros")); }

std::unique_ptr<nn::Module> make_cosmoflow(const NetworkDescription& d) {
  require_known(d, {"variant", "filters", "padding", "last_layer", "batch_norm"});
  const auto& e = d.extents;
  require(e[0] == e[1] && e[1] == e[2], "[data] CosmoFlow takes cubes, the volumes are {}", e);
  using Variant = CosmoFlowVariant;
  return std::make_unique<CosmoFlow>(CosmoFlowOptions{
      .variant = choice(d, "variant", Variant::hybrid,
                        {{"hybrid", Variant::hybrid}, {"mlperf", Variant::mlperf}, {"pyramid", Variant::pyramid}}),
      .batch_norm = setting(d, "batch_norm", false),
      .norm = d.norm,
      .keep = d.keep,
      .filters = setting<std::int64_t>(d, "filters", 0),
      .targets = d.outputs,
      .padding_mode = padding_of(d)});
}

std::unique_ptr<nn::Module> make_classifier(const NetworkDescription& d) {
  require_known(d,
                {"style", "filters", "full_resolution", "loss.name", "loss.margin"});  // the trainer's loss makes no difference
  ClassifierOptions options{.outputs = d.outputs,
                            .filters = setting<std::int64_t>(d, "filters", 16),
                            .pool_first = !setting(d, "full_resolution", false),
                            .norm = d.norm};
  if (d.keep > 0) options.keep = d.keep;
  const auto style = setting<std::string>(d, "style", "plain");
  require(style == "plain" || d.extents[0] == 1, "[network] network.style {} is for pictures, not for volumes of {}", style,
          d.extents);
  if (style == "vgg") return std::make_unique<VggClassifier>(options);
  if (style == "regressor") return std::make_unique<LatticeRegressor>(options);
  if (style == "resnet")
    return std::make_unique<ResNet>(
        ResNetOptions{.depth = 18, .classes = d.outputs, .width = options.filters, .norm = options.norm});
  require(style == "plain", "[network] the setting 'style' of classify is one of plain, vgg, resnet, regressor, not '{}'", style);
  return std::make_unique<Classifier>(options);
}

// "1x3x3 3x3x3": a triple for each level.
std::vector<Triple> triples(const NetworkDescription& d, const std::string& name) {
  std::vector<Triple> result;
  std::istringstream words(setting<std::string>(d, name, ""));
  for (std::string word; words >> word;) {
    Triple triple = 1;
    char first = 0, second = 0, rest = 0;
    std::istringstream numbers(word);
    require((numbers >> triple[0] >> first >> triple[1] >> second >> triple[2]) && first == 'x' && second == 'x' &&
                !(numbers >> rest) && *std::min_element(triple.begin(), triple.end()) > 0,
            "[network] network.{} has three whole numbers DxHxW above 0 for each level, such as 1x3x3; got '{}'", name, word);
    result.push_back(triple);
  }
  return result;
}

const std::map<std::string, std::optional<StatisticsOver>> statistics_of_names{{"all", StatisticsOver::all},
                                                                               {"spatial", StatisticsOver::spatial_group},
                                                                               {"batch", StatisticsOver::batch_group},
                                                                               {"local", StatisticsOver::local}};

std::unique_ptr<nn::Module> make_residual_unet(const NetworkDescription& d) {
  ResidualUNet3dOptions o{.strides = triples(d, "strides"),
                          .kernels = triples(d, "kernels"),
                          .blocks = setting(d, "blocks", std::vector<std::int64_t>{}),
                          .classes = d.outputs,
                          .padding_mode = padding_of(d),
                          .deep_supervision = setting(d, "deep_supervision", false),
                          .recompute = setting(d, "recompute", false)};
  if (const auto filters = setting(d, "filters", std::vector<std::int64_t>{}); !filters.empty()) o.filters = filters;
  o.statistics = *choice(d, "statistics", std::optional(o.statistics), statistics_of_names);
  return std::make_unique<ResidualUNet3d>(o);
}

std::unique_ptr<nn::Module> make_unet(const NetworkDescription& d) {
  require_known(d, {"variant", "filters", "padding", "norm", "groups", "statistics", "norm_momentum", "recompute", "strides",
                    "kernels", "blocks", "deep_supervision"});
  if (setting<std::string>(d, "variant", "") == "resenc") return make_residual_unet(d);
  UNet3dOptions options{.variant = choice(d, "variant", UNet3dVariant::mlperf,
                                          {{"mlperf", UNet3dVariant::mlperf}, {"lbann", UNet3dVariant::lbann}}),
                        .filters = setting(d, "filters", std::vector<std::int64_t>{}),
                        .classes = d.outputs,
                        .padding_mode = padding_of(d),
                        .recompute = setting(d, "recompute", false)};
  for (const auto filters : options.filters)
    require(filters >= 1 && filters <= 1 << 16, "[network] filters of unet3d are from 1 to 65536, got {}", filters);
  using Kind = nn::NormAttributes::Kind;
  nn::NormAttributes norm{.kind = options.variant == UNet3dVariant::lbann ? Kind::batch : Kind::instance};
  norm.kind = choice(d, "norm", norm.kind,
                     {{"none", Kind::none},
                      {"batch", Kind::batch},
                      {"instance", Kind::instance},
                      {"group", Kind::group},
                      {"layer", Kind::layer}});
  norm.groups = setting<std::int64_t>(d, "groups", 8);
  norm.momentum = setting(d, "norm_momentum", 0.9);
  norm.statistics = choice(d, "statistics", norm.statistics, statistics_of_names);
  options.norm = norm;
  return std::make_unique<UNet3d>(options);
}

struct Known {
  const char* name;
  std::unique_ptr<nn::Module> (*make)(const NetworkDescription&);
};
constexpr std::array known{Known{"cosmoflow", make_cosmoflow}, Known{"classify", make_classifier}, Known{"unet3d", make_unet}};

}  // namespace

std::unique_ptr<nn::Module> make_network(const NetworkDescription& d) {
  for (const auto& each : known)
    if (d.name == each.name) return each.make(d);
  fail("[network] there are the networks cosmoflow, classify and unet3d, but none is called '{}'", d.name);
}

bool describe_cosmoflow_of_version_0_1(const std::map<std::string, std::string>& notes, NetworkDescription& d) {
  if (!notes.contains("variant") || !notes.contains("batch norm")) return false;
  const auto number = [&](const char* name) {
    const auto note = notes.find(name);
    return note == notes.end() ? std::int64_t{0} : std::int64_t{std::strtoll(note->second.c_str(), nullptr, 10)};
  };
  d.name = "cosmoflow";
  d.extents = Shape{number("side"), number("side"), number("side")}, d.channels = number("channels");
  d.settings = {
      {"variant", notes.at("variant")}, {"batch_norm", notes.at("batch norm") == "yes"}, {"filters", number("filters")}};
  return true;
}

}  // namespace mpigrad
