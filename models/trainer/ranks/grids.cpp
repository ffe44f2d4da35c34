#include <algorithm>
#include <array>
#include <charconv>

#include "comm/distributed/stages.h"
#include "models/trainer/options.h"
#include "models/trainer/ranks/silent_transport.h"

namespace mpigrad::trainer {

namespace {

// Parses "AXIS=RANKS,...", the value of an option.
GridExtents named_extents(const std::string& option, const std::string& text) {
  GridExtents grid;
  std::array<std::pair<std::string, int*>, 7> axes{{{"sample", &grid.sample},
                                                    {"depth", &grid.depth},
                                                    {"height", &grid.height},
                                                    {"width", &grid.width},
                                                    {"filter", &grid.filter},
                                                    {"channel", &grid.channel},
                                                    {"stage", &grid.stage}}};
  std::vector<std::string> seen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    begin = end + 1;
    const auto equals = part.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("{} is AXIS=RANKS,..., such as sample=2,depth=2; got '{}'", option, part));
    const auto name = part.substr(0, equals), value = part.substr(equals + 1);
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const auto& candidate) { return candidate.first == name; });
    if (axis == axes.end())
      throw UsageError(
          fmt::format("{} has no axis '{}'; its axes are sample, depth, height, width, filter, channel and stage", option, name));
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) throw UsageError(fmt::format("{} names {} twice", option, name));
    seen.push_back(name);
    int& extent = *axis->second;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), extent);
    if (error != std::errc{} || stop != value.data() + value.size() || extent < 1)
      throw UsageError(fmt::format("{} {} is a number of ranks, 1 or more, got '{}'", option, name, value));
  }
  if (static_cast<double>(grid.sample) * grid.depth * grid.height * grid.width * grid.channel * grid.filter * grid.stage > 1e8)
    throw UsageError(fmt::format("{} {} has too many ranks", option, text));
  return grid;
}

// A layer whose weights are split in one dimension only has these ranks on the axis `channel`.
GridExtents parse_axes(const std::string& option, const std::string& text) {
  auto grid = named_extents(option, text);
  if (grid.channel == 1) std::swap(grid.channel, grid.filter);
  return grid;
}

}  // namespace

GridExtents parse_grid(const std::string& text, int ranks, Channels channels) {
  if (text.empty()) return {.sample = ranks};
  const auto grid = parse_axes("--grid", text);
  if (channels == Channels::whole && grid.channel > 1)
    throw UsageError(fmt::format("--grid {}: every rank needs all channels here; omit filter and channel", text));
  if (channels == Channels::whole && grid.stage > 1)
    throw UsageError(fmt::format("--grid {}: stages are for training; omit stage", text));
  return grid;
}

nn::LayerSplit split_of(const std::string& grid) {
  return grid.empty() || named_extents("--grid", grid).channel == 1 ? nn::LayerSplit(ChannelSplit::filters)
                                                                    : nn::LayerSplit(ChannelSplit::channels, "channel", true);
}

std::vector<LayerExtents> layer_grids(const Options& o, int ranks) {
  std::vector<LayerExtents> result;
  for (const auto& text : o.grid_of) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0)
      throw UsageError(fmt::format("grid.layers is LAYERS:AXIS=RANKS,..., such as conv5-7:sample=4; got '{}'", text));
    const auto layers = text.substr(0, colon), grid = text.substr(colon + 1);
    const auto option = fmt::format("grid.layers {}:", layers);
    const auto extents = parse_axes(option, grid);
    if (ranks_of(extents) != ranks)
      throw UsageError(fmt::format("{} {} has {} ranks, --grid {}; all ranks have a part in every layer", option, grid,
                                   ranks_of(extents), ranks));
    result.push_back({layers, extents, split_of(grid)});
  }
  return result;
}

std::string to_string(const GridExtents& g) {
  auto text = fmt::format("sample={},depth={},height={},width={}", g.sample, g.depth, g.height, g.width);
  if (g.channel > 1) text += fmt::format(",channel={}", g.channel);
  if (g.filter > 1) text += fmt::format(",filter={}", g.filter);
  if (g.stage > 1) text += fmt::format(",stage={}", g.stage);
  return text;
}

void check_grid(const GridExtents& grid, int ranks) {
  if (ranks_of(grid) != ranks)
    throw UsageError(fmt::format("--grid {} needs {} ranks, there {} {}: use mpiexec -n {}", to_string(grid), ranks_of(grid),
                                 ranks == 1 ? "is" : "are", ranks, ranks_of(grid)));
}

GridPtr grid_of_ranks(const Communicator& world, const Options& o, const GridExtents& extents) {
  (void)layer_grids(o, world.size());  // throws before anything is read
  const auto ranks = o.communication == "none" ? Communicator(silent_transport(world.transport().duplicate())) : world;
  const auto overlap = o.communication == "blocking" ? Overlap::never : Overlap::automatic;
  if (extents.stage == 1) return make_grid(ranks, extents, overlap);
  auto each = extents;
  each.stage = 1;
  return Stages::make(ranks, extents.stage, each, overlap)->owning_grid();
}

}  // namespace mpigrad::trainer
