#include "examples/studies/plan/layer_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::plan {
namespace {

using tool::UsageError;

constexpr std::int64_t largest = 1'000'000'000;  // largest extent
const std::vector<std::string> kinds{"conv",       "conv_transpose", "linear",     "max_pool",   "avg_pool", "batch_norm",
                                     "group_norm", "instance_norm",  "layer_norm", "activation", "dropout",  "other"};

// A table [[layer]] of a file; its keys are taken one by one.
class Entry {
 public:
  Entry(const std::string& file, const toml::table& table) : file_(file), table_(table) {}

  [[noreturn]] void refuse(const toml::node& at, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", file_, at.source().begin.line, what));
  }
  [[noreturn]] void refuse(const std::string& what) const { refuse(table_, what); }

  const toml::node* find(const std::string& key) {
    taken_.insert(key);
    return table_.get(key);
  }
  const toml::node& take(const std::string& key) {
    const auto* node = find(key);
    if (!node) refuse(fmt::format("the layer has no {}", key));
    return *node;
  }
  std::string text(const std::string& key) {
    const auto& node = take(key);
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) refuse(node, key + " is a text");
    return *value;
  }
  // A number of 0 or more.
  double number(const std::string& key, bool whole) {
    const auto& node = take(key);
    if (!node.is_number()) refuse(node, key + " is a number");
    // The nearest double, also for integers beyond 2^53, for which node.value<double>() returns none.
    const double value = node.is_integer() ? static_cast<double>(node.as_integer()->get()) : node.as_floating_point()->get();
    if (!std::isfinite(value) || value < 0) refuse(node, fmt::format("{} is a number of 0 or more, not {}", key, value));
    if (whole && value != std::floor(value)) refuse(node, fmt::format("{} is a whole number, not {}", key, value));
    return value;
  }
  std::vector<std::int64_t> extents(const std::string& key, std::size_t count, const char* names) {
    const auto& node = take(key);
    const auto* array = node.as_array();
    if (!array || array->size() != count) refuse(node, fmt::format("{} is {}", key, names));
    std::vector<std::int64_t> values;
    for (const auto& each : *array) {
      const auto value = each.value_exact<std::int64_t>();
      if (!value || *value < 1 || *value > largest) refuse(each, fmt::format("{} has whole numbers from 1 to {}", key, largest));
      values.push_back(*value);
    }
    return values;
  }
  // Throws if the table has other keys.
  void finish() const {
    for (const auto& [key, node] : table_)
      if (!taken_.contains(std::string(key.str())))
        refuse(node, fmt::format("unknown key '{}'", printable(std::string(key.str()))));
  }

 private:
  const std::string& file_;
  const toml::table& table_;
  std::set<std::string> taken_;
};

// The tables [[layer]] of a file, which must contain nothing else.
template <class F>
void each_layer(const std::string& file, const F& read) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream.good() || std::filesystem::is_directory(file)) throw UsageError(fmt::format("{}: no such file of layers", file));
  const auto text = read_bounded(stream);
  if (const auto excess = excess_of_toml(text); !excess.empty()) throw UsageError(fmt::format("{}: the file {}", file, excess));
  toml::table document;
  try {
    document = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    throw UsageError(line > 0 ? fmt::format("{}:{}: {}", file, line, error.description())
                              : fmt::format("{}: {}", file, error.description()));
  }
  for (const auto& [key, node] : document)
    if (key != "layer") Entry(file, document).refuse(node, fmt::format("unknown key '{}'", printable(std::string(key.str()))));
  const auto* layers = document.get_as<toml::array>("layer");
  if (!layers || layers->empty()) throw UsageError(fmt::format("{}: there are no tables [[layer]]", file));
  for (const auto& node : *layers) {
    const auto* table = node.as_table();
    if (!table) Entry(file, document).refuse(node, "a layer is a table [[layer]]");
    read(Entry(file, *table));
  }
}

double product(const std::array<std::int64_t, 3>& extents) {
  return static_cast<double>(extents[0]) * static_cast<double>(extents[1]) * static_cast<double>(extents[2]);
}

planner::Layer layer_of(Entry& entry) {
  planner::Layer layer;
  layer.name = entry.text("name");
  layer.kind = entry.text("kind");
  if (std::find(kinds.begin(), kinds.end(), layer.kind) == kinds.end())
    entry.refuse(*entry.find("kind"), fmt::format("'{}' is no kind of layer: {}", printable(layer.kind), joined(kinds, ", ")));
  const auto in = entry.extents("in", 4, "[depth, height, width, channels]");
  const auto out = entry.extents("out", 4, "[depth, height, width, channels]");
  std::copy(in.begin(), in.begin() + 3, layer.in_extents.begin()), layer.in_channels = in[3];
  std::copy(out.begin(), out.begin() + 3, layer.out_extents.begin()), layer.out_channels = out[3];
  const bool window = layer.kind.starts_with("conv") || layer.kind.ends_with("_pool");
  if (window || entry.find("kernel")) {
    const auto kernel = entry.extents("kernel", 3, "[depth, height, width]");
    std::copy(kernel.begin(), kernel.end(), layer.kernel.begin());
  }
  if (!window && product(layer.kernel) != 1)
    entry.refuse(*entry.find("kernel"), fmt::format("a layer of kind {} has no kernel", layer.kind));
  if (layer.has_product() || entry.find("weights")) layer.weights = entry.number("weights", true);
  layer.inputs = product(layer.in_extents) * static_cast<double>(layer.in_channels);
  layer.outputs = product(layer.out_extents) * static_cast<double>(layer.out_channels);
  if (entry.find("forward_flops")) {
    layer.forward_flops = entry.number("forward_flops", false);
  } else if (layer.kind == "linear") {
    layer.forward_flops = 2 * std::min(layer.weights, layer.inputs * layer.outputs);
  } else if (layer.has_product()) {
    const double pairs = static_cast<double>(layer.in_channels) * static_cast<double>(layer.out_channels);
    layer.forward_flops = 2 * product(layer.kind == "conv" ? layer.out_extents : layer.in_extents) *
                          std::min(layer.weights, product(layer.kernel) * pairs);
  }
  layer.backward_flops = 2 * layer.forward_flops;
  entry.finish();
  return layer;
}

}  // namespace

std::vector<planner::Layer> read_layer_file(const std::filesystem::path& path) {
  std::vector<planner::Layer> layers;
  std::set<std::string> names;
  each_layer(path.string(), [&](Entry entry) {
    layers.push_back(layer_of(entry));
    if (!names.insert(layers.back().name).second)
      entry.refuse(*entry.find("name"), fmt::format("a second layer '{}'", printable(layers.back().name)));
  });
  return layers;
}

std::vector<planner::LayerTime> read_times(const std::filesystem::path& path, const std::vector<planner::Layer>& layers) {
  std::map<std::string, planner::LayerTime> times;
  each_layer(path.string(), [&](Entry entry) {
    const auto name = entry.text("name");
    const auto& at = *entry.find("name");
    if (std::none_of(layers.begin(), layers.end(), [&](const auto& layer) { return layer.name == name; }))
      entry.refuse(at, fmt::format("the network has no layer '{}'", printable(name)));
    if (times.contains(name)) entry.refuse(at, fmt::format("a second time of layer '{}'", printable(name)));
    times[name] = {.forward = entry.number("forward", false),
                   .backward = entry.number("backward", false),
                   .update = entry.number("update", false)};
    entry.finish();
  });
  std::vector<planner::LayerTime> result;
  for (const auto& layer : layers) {
    const auto found = times.find(layer.name);
    if (found == times.end()) throw UsageError(fmt::format("{}: no times of layer '{}'", path.string(), printable(layer.name)));
    result.push_back(found->second);
  }
  return result;
}

}  // namespace mpigrad::plan
