// plan integrated: the grid of model, batch and domain parallelism that communicates least, by the published equations.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "examples/studies/plan/commands.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/formulas/integrated.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

using planner::Convolutions;
using tool::UsageError;

Convolutions convolutions_named(const std::string& name) {
  return name == "same" ? Convolutions::same : name == "domain" ? Convolutions::domain : Convolutions::batch;
}

nlohmann::ordered_json to_json(const planner::IntegratedResult& result) {
  using Json = nlohmann::ordered_json;
  Json grids = Json::array();
  for (const auto& grid : result.grids)
    grids.push_back({{"pr", grid.pr}, {"pc", grid.pc}, {"communication_s", grid.communication}, {"possible", grid.possible}});
  return {{"best", {{"pr", result.best.pr}, {"pc", result.best.pc}}},
          {"communication_s", result.best.communication},
          {"batch_only_s", result.batch_only},
          {"speedup", result.speedup},
          {"grids", std::move(grids)}};
}

void print(const IntegratedOptions& o, const planner::IntegratedResult& result) {
  fmt::print("{} on {} ranks, a batch of {}: communication in an epoch of {} iterations\n\n{:>9}  {:>9}  {:>14}\n", o.network,
             o.ranks, o.batch, result.iterations, "Pr", "Pc", "s");
  for (const auto& grid : result.grids)
    fmt::print("{:>9}  {:>9}  {:>14.6g}{}\n", grid.pr, grid.pc, grid.communication,
               !grid.possible              ? "  ranks without work"
               : grid.pr == result.best.pr ? "  best"
                                           : "");
  fmt::print("\nonly by samples: {:.6g} s{}; the best grid is {:.3f} times as fast\n", result.batch_only,
             o.ranks > o.batch ? " (by the equation; there are fewer samples than ranks)" : "", result.speedup);
}

}  // namespace

void add_integrated(CLI::App& app, IntegratedOptions& o) {
  auto& command = *app.add_subcommand(
      "integrated", "the grid of model, batch and domain parallelism that communicates least, by Gholami et al. (2018)");
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t high, const char* text) {
    return command.add_option(name, value, text)->check(tool::whole_number(1, high));
  };
  constexpr std::int64_t most = 1'000'000'000'000;
  command.add_option("--network", o.network, "a network by name, or a layer file, .toml")->required();
  whole("--size", o.size, 1'000'000, "extent of its input in each dimension; else the network's");
  whole("--ranks", o.ranks, 1'000'000, "ranks P; every Pr x Pc is tried")->required();
  whole("--batch", o.batch, most, "samples in an iteration, on all ranks together")->required();
  command.add_option("--alpha", o.alpha, "seconds of a message")->required()->check(tool::number_from(0));
  command.add_option("--bandwidth", o.bandwidth, "bytes per second between two ranks")->required()->check(tool::number_above(0));
  whole("--samples", o.samples, most, "of an epoch")->required();
  command
      .add_option("--convolutions", o.convolutions,
                  "batch: split by samples over all ranks; same: on the grid of products; domain: images split over Pr")
      ->check(CLI::IsMember({"batch", "same", "domain"}))
      ->capture_default_str();
  command
      .add_option("--factor", o.factor,
                  "3: as printed; 2: gradients of inputs go only to the ranks that need them, as in this library")
      ->check(CLI::IsMember(std::vector<std::int64_t>{2, 3}))
      ->capture_default_str();
  command.add_flag("--json", o.json, "print one JSON document and nothing else");
}

int integrated(const IntegratedOptions& o) {
  planner::IntegratedInput in;
  in.layers = layers_named(o.network, o.size);
  in.ranks = o.ranks, in.batch = o.batch, in.samples = o.samples;
  in.latency = o.alpha, in.bandwidth = o.bandwidth;
  in.convolutions = convolutions_named(o.convolutions), in.factor = static_cast<double>(o.factor);
  planner::IntegratedResult result;
  try {
    result = planner::search_grids(in);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (o.json) fmt::print("{}\n", tool::to_text(to_json(result)));
  else print(o, result);
  return 0;
}

}  // namespace mpigrad::plan
