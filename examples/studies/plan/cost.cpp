// plan cost: the cost of an epoch by the published formulas, term by term.

#include "examples/studies/plan/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "examples/studies/plan/layer_file.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/formulas/oracle.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

using planner::Strategy;
using tool::UsageError;

constexpr std::int64_t most_ranks = 1'000'000;

std::pair<std::int64_t, std::int64_t> parse_groups(const std::string& text) {
  std::int64_t groups = 0, group = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, groups);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == 'x') {
    const auto second = std::from_chars(first.ptr + 1, end, group);
    if (second.ec == std::errc() && second.ptr == end && groups >= 1 && groups <= most_ranks && group >= 1 && group <= most_ranks)
      return {groups, group};
  }
  throw UsageError(fmt::format("--groups: two numbers such as 8x4 are needed, not '{}'", text));
}

planner::OracleInput input_of(const CostOptions& o) {
  planner::OracleInput in;
  in.strategy = *planner::strategy_named(o.strategy);
  in.ranks = o.ranks, in.samples = o.samples, in.batch = o.batch;
  in.latency = o.alpha, in.bandwidth = o.bandwidth;
  in.weight_bytes = o.weight_bytes;
  if (!o.network.empty() && (!o.layers.empty() || o.weight_bytes))
    throw UsageError("--network excludes --layers and --weight-bytes");
  if (!o.network.empty()) in.layers = layers_named(o.network, o.size);
  else if (!o.layers.empty()) in.layers = read_layer_file(o.layers);
  if (o.network.empty() && o.size > 0) throw UsageError("--size is for --network");
  if (in.layers.empty() && !o.weight_bytes) throw UsageError("--network, --layers or --weight-bytes is needed");
  if (in.layers.empty() && in.strategy != Strategy::data && in.strategy != Strategy::serial)
    throw UsageError(fmt::format("--strategy {} needs layers: --network or --layers", o.strategy));
  if (!o.times.empty()) {
    if (in.layers.empty()) throw UsageError("--times needs layers: --network or --layers");
    in.times = read_times(o.times, in.layers);
  }
  if (planner::is_hybrid(in.strategy)) {
    if (o.groups.empty()) throw UsageError(fmt::format("--strategy {} needs --groups, groups x ranks of each", o.strategy));
    std::tie(in.groups, in.group) = parse_groups(o.groups);
    if (in.groups * in.group != o.ranks)
      throw UsageError(fmt::format("--groups {} are {} ranks, --ranks is {}", o.groups, in.groups * in.group, o.ranks));
  } else if (!o.groups.empty()) {
    throw UsageError(fmt::format("--groups is for data+filter and data+spatial, not for {}", o.strategy));
  }
  if (o.segments > 0 && in.strategy != Strategy::pipeline)
    throw UsageError(fmt::format("--segments is for pipeline, not for {}", o.strategy));
  if (o.segments > o.batch) throw UsageError(fmt::format("a batch of {} has no {} segments", o.batch, o.segments));
  in.segments = o.segments > 0 ? o.segments : std::min(o.ranks, o.batch);
  const bool inner = o.group_alpha || o.group_bandwidth || o.halo_alpha || o.halo_bandwidth || o.spatial_layers > 0;
  if (inner && in.strategy != Strategy::data_spatial)
    throw UsageError(fmt::format("--group-alpha and its like are for data+spatial, not for {}", o.strategy));
  in.group_latency = o.group_alpha, in.group_bandwidth = o.group_bandwidth;
  in.halo_latency = o.halo_alpha, in.halo_bandwidth = o.halo_bandwidth, in.spatial_layers = o.spatial_layers;
  if (in.strategy == Strategy::serial && o.ranks != 1) throw UsageError("--strategy serial is on one rank");
  return in;
}

nlohmann::ordered_json to_json(const planner::OracleResult& result) {
  using Json = nlohmann::ordered_json;
  return {{"compute_s", result.compute ? Json(*result.compute) : Json()},
          {"communication_s", result.communication},
          {"memory_bytes", result.memory_bytes ? Json(*result.memory_bytes) : Json()},
          {"limit", {{"name", result.limit.name}, {"value", result.limit.value}}}};
}

void print(const CostOptions& o, const planner::OracleInput& in, const planner::OracleResult& result) {
  fmt::print("{} on {} rank{}: an epoch of {} iterations\n\n", o.strategy, o.ranks, o.ranks == 1 ? "" : "s", result.iterations);
  const auto line = [](const std::string& name, const std::string& value, const std::string& more = {}) {
    fmt::print("{:<24} {:>16}{}{}\n", name, value, more.empty() ? "" : "  ", more);
  };
  const auto seconds = [](double value) { return fmt::format("{:.6g} s", value); };
  line("compute", result.compute ? seconds(*result.compute) : "unknown", result.compute ? "" : "needs --times");
  line("communication", seconds(result.communication));
  for (const auto& term : result.terms) line("  " + term.name, seconds(term.seconds));
  line("memory of a rank", result.memory_bytes ? fmt::format("{:.6g} B", *result.memory_bytes) : "unknown",
       result.memory_bytes ? "" : "needs layers");
  line("limit", fmt::format("{:.15g}", result.limit.value),
       fmt::format("{}{}", result.limit.name, result.limit.exceeded ? ", exceeded" : ""));
  if (in.strategy == Strategy::spatial)
    line("grid", fmt::format("{}x{}x{}", result.grid[0], result.grid[1], result.grid[2]), "depth x height x width");
  std::int64_t begin = 0;
  for (std::size_t g = 0; g < result.group_ends.size(); ++g) {
    const auto end = result.group_ends[g];
    line(fmt::format("group {}", g + 1), fmt::format("{} layers", end - begin),
         fmt::format("{} to {}", in.layers[static_cast<std::size_t>(begin)].name,
                     in.layers[static_cast<std::size_t>(end - 1)].name));
    begin = end;
  }
  const auto found = planner::diagnose(in, result);
  if (!found.empty()) fmt::print("\n");
  for (const auto& each : found) fmt::print("{:<10}  {}: {}\n", planner::name_of(each.kind), each.name, each.sentence);
}

}  // namespace

void add_cost(CLI::App& app, CostOptions& o) {
  auto& command = *app.add_subcommand("cost", "the cost of an epoch by the formulas of Kahira et al. (2021), term by term");
  const std::vector<std::string> strategies{"serial", "data",    "spatial",     "pipeline",
                                            "filter", "channel", "data+filter", "data+spatial"};
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t high, const char* text) {
    return command.add_option(name, value, text)->check(tool::whole_number(1, high));
  };
  constexpr std::int64_t most = 1'000'000'000'000;
  command.add_option("--strategy", o.strategy, "how work is split")->required()->check(CLI::IsMember(strategies));
  whole("--ranks", o.ranks, most_ranks, "ranks that share the work")->required();
  whole("--samples", o.samples, most, "of an epoch")->required();
  whole("--batch", o.batch, most, "samples in an iteration, on all ranks together")->required();
  command.add_option("--alpha", o.alpha, "seconds of a message")->required()->check(tool::number_from(0));
  command.add_option("--bandwidth", o.bandwidth, "bytes per second between two ranks")->required()->check(tool::number_above(0));
  command.add_option("--network", o.network, "a network by name, or a layer file, .toml");
  whole("--size", o.size, 1'000'000, "extent of its input in each dimension; else the network's");
  command
      .add_option("--weight-bytes", o.weight_bytes,
                  "bytes of all weights, which is enough for data; with --layers: in place of theirs")
      ->check(tool::number_above(0));
  command.add_option("--layers", o.layers, "a layer file, .toml");
  command.add_option("--groups", o.groups, "of data+filter and data+spatial: groups x ranks of each")->type_name("P1xP2");
  command.add_option("--group-alpha", o.group_alpha, "of data+spatial: seconds of a message inside a group; else --alpha")
      ->check(tool::number_from(0));
  command.add_option("--group-bandwidth", o.group_bandwidth, "bytes per second there; else --bandwidth")
      ->check(tool::number_above(0));
  command.add_option("--halo-alpha", o.halo_alpha, "seconds of halos' and gathers' messages, if other than reductions'")
      ->check(tool::number_from(0));
  command.add_option("--halo-bandwidth", o.halo_bandwidth, "bytes per second of these")->check(tool::number_above(0));
  whole("--spatial-layers", o.spatial_layers, 1'000'000, "layers that a group splits, the first; else as many as have planes");
  whole("--segments", o.segments, most, "parts of a batch in a pipeline; else as many as ranks");
  command.add_option("--times", o.times, "a file of the layers' times, .toml");
  command.add_flag("--json", o.json, "print one JSON document and nothing else");
}

int cost(const CostOptions& o) {
  const auto in = input_of(o);
  planner::OracleResult result;
  try {
    result = planner::evaluate(in);
  } catch (const Error& error) {
    throw UsageError(error.what());  // the network lacks what the strategy needs
  }
  if (o.json) fmt::print("{}\n", tool::to_text(to_json(result)));
  else print(o, in, result);
  return 0;
}

}  // namespace mpigrad::plan
