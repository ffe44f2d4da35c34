#include "models/nn/describe.h"
#include "comm/process/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "models/nn/step_trace.h"

namespace mpigrad {
namespace {

// Ranks that include the extremes: those at the ends and in the middle of every axis of every grid. Along the sample axis the
// first rank suffices, because blocks of samples only shrink along it.
std::set<int> typical_ranks(const DescribeOptions& options) {
  const auto places = [](int n) { return std::set<int>{0, n / 2, n - 1}; };
  std::set<int> ranks;
  const auto add = [&](const GridExtents& g) {
    for (const int depth : places(g.depth))
      for (const int height : places(g.height))
        for (const int width : places(g.width))
          for (const int channel : places(g.channel))
            for (const int filter : places(g.filter))
              ranks.insert((((depth * g.height + height) * g.width + width) * g.channel + channel) * g.filter + filter);
  };
  add(options.grid);
  for (const auto& own : options.grids) add(own.grid);
  const auto of_stage = ranks;
  for (int stage = 1; stage < options.grid.stage; ++stage)
    for (const int rank : of_stage) ranks.insert(stage * (ranks_of(options.grid) / options.grid.stage) + rank);
  return ranks;
}

// Adds what a rank of a stage has and sends.
void add_to_stage(Description& d, int stage, const StepTrace& step, std::int64_t peak_bytes) {
  d.stages.resize(static_cast<std::size_t>(d.grid.stage));
  auto& mine = d.stages[static_cast<std::size_t>(stage)];
  for (const auto& layer : step.layers)
    if (!layer.elsewhere && mine.first.empty()) mine.first = layer.name;
  mine.parameter_bytes = std::max(mine.parameter_bytes, step.parameter_bytes);
  mine.peak_bytes = std::max(mine.peak_bytes, peak_bytes);
  mine.sent_bytes = std::max(mine.sent_bytes, step.sent_bytes);
}

constexpr double giga = 1e-9;
constexpr int most_described_ranks = 65536;

}  // namespace

Description describe(nn::Module& net, const Shape& input, const DescribeOptions& options) {
  require(input.rank() == 5, "[describe] the input is [N, D, H, W, C], got {}", input);
  const auto& g = options.grid;
  double grid_ranks = 1;
  for (const int extent : {g.sample, g.depth, g.height, g.width, g.channel, g.filter, g.stage}) {
    require(extent > 0, "[describe] grid extents are at least 1, got {}", extent);
    grid_ranks *= extent;
  }
  // Every group of ranks is laid out as on the machine itself; this takes minutes for millions of ranks.
  require(grid_ranks <= most_described_ranks,
          "[describe] {} ranks, sample={} depth={} height={} width={} channel={} filter={}; at most {}", grid_ranks, g.sample,
          g.depth, g.height, g.width, g.channel, g.filter, most_described_ranks);
  for (const auto& own : options.grids)
    require(ranks_of(own.grid) == static_cast<int>(grid_ranks),
            "[describe] the grid of {} has {} ranks, the network's has {}; they must be the same", own.layers, ranks_of(own.grid),
            grid_ranks);
  const auto parts = options.accumulate;
  require(parts >= 1 && input[0] % parts == 0, "[describe] {} samples cannot be computed in {} equal parts", input[0], parts);
  auto part = input;
  part[0] /= parts;
  const auto others = memory_statistics(DeviceKind::dry).current_bytes;  // tensors of other networks on this thread
  const std::array<std::pair<const char*, int>, 4> axes{
      {{"sample", g.sample}, {"depth", g.depth}, {"height", g.height}, {"width", g.width}}};
  for (int d = 0; d < 4; ++d) {
    const auto& [name, ranks] = axes[static_cast<std::size_t>(d)];
    require(ranks <= part[d], "[describe] {} ranks along {} for an extent of {}: input {}", ranks, name, part[d], part);
  }
  Description result{.input = input,
                     .grid = g,
                     .ranks = ranks_of(g),
                     .accumulate = parts,
                     .dtype = options.dtype,
                     .compute = options.compute.value_or(options.dtype)};

  auto alone = options;
  alone.grid = {}, alone.grids.clear(), alone.sharded_weights = false, alone.boundaries.clear();
  const auto whole = trace_step(net, part, alone, 0, 1);
  result.parameters = net.parameters().elements();
  for (const auto& layer : whole.layers) {
    const double gflop = layer.flops * giga * static_cast<double>(parts);
    result.layers.push_back({layer.name, layer.kind, layer.out, layer.parameters, gflop});
    result.forward_gflop += gflop;
  }
  result.backward_gflop = whole.backward_flops * giga;

  for (const int rank : typical_ranks(options)) {
    const auto step = result.ranks == 1 ? whole : trace_step(net, part, options, rank, result.ranks);
    require(step.layers.size() == result.layers.size(),
            "[describe] the network has {} layers on one rank and {} on rank {} of {}", result.layers.size(), step.layers.size(),
            rank, result.ranks);
    std::int64_t activations = 0, halos = 0, moved = 0, collective = 0;
    for (std::size_t i = 0; i < step.layers.size(); ++i) {
      auto& layer = result.layers[i];
      if (!step.layers[i].elsewhere) layer.stage = rank / (result.ranks / g.stage);
      layer.activation_bytes = std::max(layer.activation_bytes, step.layers[i].activation_bytes);
      layer.halo_bytes = std::max(layer.halo_bytes, step.layers[i].sent_bytes);
      layer.moved_bytes = std::max(layer.moved_bytes, step.layers[i].moved_bytes);
      layer.collective_bytes = std::max(layer.collective_bytes, step.layers[i].collective_bytes);
      activations += step.layers[i].activation_bytes, halos += step.layers[i].sent_bytes;
      moved += step.layers[i].moved_bytes, collective += step.layers[i].collective_bytes;
    }
    result.moved_bytes = std::max(result.moved_bytes, moved);
    result.collective_bytes = std::max(result.collective_bytes, collective);
    result.activation_bytes = std::max(result.activation_bytes, activations);
    result.halo_bytes = std::max(result.halo_bytes, halos);
    result.sent_bytes = std::max(result.sent_bytes, step.sent_bytes);
    result.reduced_bytes = std::max(result.reduced_bytes, step.reduced_bytes);
    result.gathered_bytes = std::max(result.gathered_bytes, step.gathered_bytes);
    result.optimizer_bytes = std::max(result.optimizer_bytes, step.optimizer_bytes);
    result.optimizer_work = step.optimizer_work;
    result.peak_bytes = std::max(result.peak_bytes, step.peak_bytes - others);
    if (g.stage > 1) add_to_stage(result, rank / (result.ranks / g.stage), step, step.peak_bytes - others);
  }
  for (const auto& layer : result.layers)
    if (g.stage > 1) result.stages[static_cast<std::size_t>(layer.stage)].gflop += layer.gflop;
  return result;
}

std::string readable_bytes(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return value < 10 ? fmt::format("{:.2f} {}", value, units[unit]) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string to_string(const Description& d) {
  constexpr auto row = "{:<12} {:<13} {:<26} {:>12} {:>14} {:>14} {:>14}{}\n";
  // Columns appear only where something is sent in that way.
  const auto more = [&](const std::string& moved, const std::string& collective) {
    return (d.moved_bytes > 0 ? fmt::format(" {:>14}", moved) : "") +
           (d.collective_bytes > 0 ? fmt::format(" {:>14}", collective) : std::string());
  };
  const auto unless_none = [](std::int64_t bytes) { return bytes ? readable_bytes(bytes) : std::string(); };
  const auto in = d.compute == d.dtype ? std::string() : fmt::format(", computed in {}", name_of(d.compute));
  std::string text = fmt::format("input {} {}{}, grid sample={} depth={} height={} width={}{}\n\n", name_of(d.dtype), d.input, in,
                                 d.grid.sample, d.grid.depth, d.grid.height, d.grid.width,
                                 (d.grid.channel > 1 ? fmt::format(" channel={}", d.grid.channel) : std::string()) +
                                     (d.grid.filter > 1 ? fmt::format(" filter={}", d.grid.filter) : std::string()) +
                                     (d.grid.stage > 1 ? fmt::format(" stage={}", d.grid.stage) : std::string()));
  text += fmt::format(row, "", "", "", "", "forward", "activations", "halo sent", more("redistributed", "collectives"));
  text +=
      fmt::format(row, "layer", "kind", "output", "parameters", "GFLOP", "per rank", "per rank", more("per rank", "per rank"));
  for (const auto& layer : d.layers)
    text += fmt::format(row, layer.name, layer.kind, fmt::format("{}", layer.out),
                        layer.parameters ? fmt::to_string(layer.parameters) : "", fmt::format("{:.4f}", layer.gflop),
                        readable_bytes(layer.activation_bytes), unless_none(layer.halo_bytes),
                        more(unless_none(layer.moved_bytes), unless_none(layer.collective_bytes)));
  text +=
      fmt::format(row, "total", "", "", d.parameters, fmt::format("{:.4f}", d.forward_gflop), readable_bytes(d.activation_bytes),
                  readable_bytes(d.halo_bytes), more(readable_bytes(d.moved_bytes), readable_bytes(d.collective_bytes)));
  if (!d.stages.empty())
    text += fmt::format("\n{:<6} {:<24} {:>14} {:>14} {:>14} {:>14}\n", "stage", "first layer", "forward GFLOP", "parameters",
                        "tensors", "sent per step");
  for (std::size_t s = 0; s < d.stages.size(); ++s) {
    const auto& stage = d.stages[s];
    text +=
        fmt::format("{:<6} {:<24} {:>14.4f} {:>14} {:>14} {:>14}\n", s, stage.first, stage.gflop,
                    readable_bytes(stage.parameter_bytes), readable_bytes(stage.peak_bytes), readable_bytes(stage.sent_bytes));
  }
  text += fmt::format("\n{} parameters\na training step of {} samples{}:\n", d.parameters, d.input[0],
                      d.accumulate == 1 ? std::string()
                                        : fmt::format(", {} parts of {} one after the other (activations and halos: of one part)",
                                                      d.accumulate, d.input[0] / d.accumulate));
  text += fmt::format("{:.4g} GFLOP forward, {:.4g} backward (without the gradient of the input)\n", d.forward_gflop,
                      d.backward_gflop);
  text += fmt::format("at most {} of tensors on a rank, {}\n", readable_bytes(d.peak_bytes),
                      d.optimizer_bytes > 0 ? fmt::format("{} of them the optimizer's", readable_bytes(d.optimizer_bytes))
                                            : std::string("no optimizer state"));
  if (d.ranks > 1 && !d.optimizer_work.empty()) text += d.optimizer_work + "\n";
  if (d.ranks > 1)
    text +=
        fmt::format("at most {} sent by a rank, {} passed to reductions of gradients and statistics, {} to other collectives\n",
                    readable_bytes(d.sent_bytes), readable_bytes(d.reduced_bytes), readable_bytes(d.gathered_bytes));
  if (openmp_waits_long())
    text += "threads of OpenMP wait in loops: on a machine that others use, GOMP_SPINCOUNT=3000 in the environment is faster\n";
  return text;
}

}  // namespace mpigrad
